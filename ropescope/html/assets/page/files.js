/* Downloads of charts as pictures and tables, and where the numbers of a chart come from. */

import { viewForFile } from "./charts.js";
import { ownerOf } from "./state.js";
import { csvOf } from "./tables.js";

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

async function download(figure, kind) {
  const name = `${figure.id}.${kind}`;
  if (kind === "csv") {
    save(new Blob([await csvOf(figure)], { type: "text/csv" }), name);
    return;
  }
  const view = await viewForFile(figure);
  if (kind === "svg") save(new Blob([await view.toSVG()], { type: "image/svg+xml" }), name);
  else (await view.toCanvas(2)).toBlob((blob) => save(blob, name), "image/png");
  view.finalize();
}

export function watchFiles() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-get]");
    if (button) download(button.closest("figure"), button.dataset.get);
  });
  // The source is the same for all figures of a run: it is stored once and copied to where it is opened.
  for (const source of document.querySelectorAll(".source"))
    source.addEventListener("toggle", () => {
      if (source.open && source.children.length === 1)
        source.append(ownerOf(source.closest("figure")).querySelector("template.about").content.cloneNode(true));
    });
}
