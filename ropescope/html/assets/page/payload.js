/* Data of the page: compressed text in script elements, decompressed when it is needed. */

/* Vega interprets the expressions of charts instead of compiling them, which the policy of the page does not allow. */
export const SAFE = { ast: true };

async function decompressed(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

let engine = null;

/* Resolves to the function that draws a chart. */
export function loadEngine() {
  engine ??= decompressed(document.getElementById("engine").textContent).then((code) => {
    const script = document.createElement("script");
    script.textContent = code;
    document.head.append(script);
    return window.vegaEmbed;
  });
  return engine;
}

const payloads = new Map();

/* Resolves to the charts, the tables and the choice of heads of a run. */
export function payload(section) {
  if (!payloads.has(section))
    payloads.set(
      section,
      decompressed((section.querySelector(":scope > .payload") ?? section.querySelector(".payload")).textContent).then(JSON.parse),
    );
  return payloads.get(section);
}
