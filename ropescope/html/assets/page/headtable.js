/* The table of all heads: sorted by any column, filtered, and downloaded as CSV. */

import { save } from "./files.js";
import { payload } from "./payload.js";
import { pick } from "./state.js";
import { csvText } from "./tables.js";

/* A value as the table shows it: numbers of a column have as many digits as it needs, shares are in per cent. */
function shown(value, column) {
  if (value === null) return "\u2013";
  if (typeof value !== "number") return String(value);
  return (column.percent ? `${Math.round(100 * value)} %` : value.toFixed(column.digits)).replace("-", "\u2212");
}

/* Smallest first, text by its numbers; what was not measured comes last either way. */
function order(a, b, way) {
  if (a === null || b === null) return (a === null) - (b === null);
  return way * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

function line(row, columns, section) {
  const cells = document.createElement("tr");
  columns.forEach((column, n) => {
    const name = column.name;
    const cell = document.createElement(n ? "td" : "th");
    if (n) {
      cell.textContent = shown(row[name], column);
      if (typeof row[name] === "number") cell.className = "number";
      if (name === "kind") cell.className = `ht-${row[name]}`;
    } else {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = row[name];
      button.addEventListener("click", () => pick(section, row[name]));
      cell.scope = "row";
      cell.append(button);
    }
    cells.append(cell);
  });
  return cells;
}

async function start(box) {
  const { columns, values, length, file } = await payload(box);
  const names = columns.map((column) => column.name), section = box.closest(".run");
  const rows = Array.from({ length }, (_, n) => Object.fromEntries(names.map((name) => [name, values[name][n] ?? null])));
  const lines = new Map(rows.map((row) => [row, line(row, columns, section)]));
  const [find, kind, body, output] = ["input", "select", "tbody", "output"].map((name) => box.querySelector(name));
  let by = "head", way = 1;

  const chosen = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => columns.some((column) => matches(shown(row[column.name], column), word)));
    return rows
      .filter((row) => (!kind.value || row.kind === kind.value) && fits(row))
      .sort((a, b) => order(a[by], b[by], way) || order(a.head, b.head, 1));
  };
  const show = () => {
    const some = chosen();
    body.replaceChildren(...some.map((row) => lines.get(row)));
    output.textContent = some.length === rows.length ? `${rows.length} heads` : `${some.length} of ${rows.length} heads`;
  };

  for (const button of box.querySelectorAll("[data-sort]"))
    button.addEventListener("click", () => {
      const name = names[Number(button.dataset.sort)], first = typeof rows.find((row) => row[name] !== null)?.[name] === "number" ? -1 : 1;
      way = by === name ? -way : name === "layer" ? 1 : first; // numbers: the largest first
      by = name;
      for (const title of box.querySelectorAll("thead th")) title.setAttribute("aria-sort", "none");
      button.closest("th").setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      show();
    });
  find.addEventListener("input", show);
  kind.addEventListener("change", show);
  box.querySelector("[data-csv]").addEventListener("click", () => {
    const text = csvText([names, ...chosen().map((row) => names.map((name) => row[name]))]);
    save(new Blob([text], { type: "text/csv" }), file);
  });
  document.addEventListener("ropescope:head", ({ detail }) => {
    if (detail?.run !== section.dataset.run) return;
    for (const [row, element] of lines) element.toggleAttribute("data-chosen", row.head === `L${detail.layer} H${detail.head}`);
  });
  show();
}

/* A word such as L3 names the layer 3, and not 30. */
function matches(text, word) {
  const at = text.toLowerCase().indexOf(word);
  return at >= 0 && !(/\d$/.test(word) && /\d/.test(text[at + word.length] ?? ""));
}

/* Tables are filled when they come near the window. */
export function startHeadTables() {
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries)
        if (entry.isIntersecting) {
          watcher.unobserve(entry.target);
          start(entry.target);
        }
    },
    { rootMargin: "600px 0px" },
  );
  for (const box of document.querySelectorAll(".ht")) watcher.observe(box);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-choose]");
    if (button) pick(button.closest(".run"), button.dataset.choose);
  });
}
