/* Charts: drawn when they come into view, drawn again in other colours, and told what is chosen. */

import { look } from "./look.js";
import { loadEngine, payload, SAFE } from "./payload.js";
import { chosen, headName, pick } from "./state.js";
import { specOf } from "./tables.js";

const views = new Map(); // figure -> { view, names of its signals }
const drawing = new Map(); // figure -> promise of having been drawn

export const isDark = () => document.documentElement.dataset.theme === "dark";

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  },
  { rootMargin: "300px 0px" },
);

export function watchCharts() {
  for (const figure of document.querySelectorAll(".figures figure")) watcher.observe(figure);
}

/* Resolves when a chart is on the page. */
export function draw(figure) {
  if (!drawing.has(figure))
    drawing.set(
      figure,
      drawNow(figure).catch((error) => {
        const note = document.createElement("p");
        note.textContent = "This chart could not be drawn.";
        figure.querySelector(".plot").replaceChildren(note);
        console.error(error);
      }),
    );
  return drawing.get(figure);
}

async function drawNow(figure) {
  const plot = figure.querySelector(".plot"), section = figure.closest(".run");
  const dark = isDark();
  const [spec, embed, { choice }] = await Promise.all([specOf(figure, dark, false), loadEngine(), payload(section)]);
  const holder = document.createElement("div");
  plot.replaceChildren(holder);
  const options = { ...SAFE, actions: false, renderer: "svg", config: look(dark), tooltip: { theme: dark ? "dark" : "light" } };
  const { view } = await embed(holder, spec, options);
  if (dark !== isDark()) {
    view.finalize(); // the theme changed meanwhile
    return drawNow(figure);
  }
  const svg = plot.querySelector("svg"), width = Number(svg.getAttribute("width"));
  // Charts shrink with the window while their text can still be read; below that they scroll in their box.
  const most = figure.classList.contains("full") ? 1.25 : 1;
  svg.style.width = `max(${Math.round(0.62 * width)}px, min(100%, ${Math.round(most * width)}px))`;
  plot.classList.add("drawn");
  plot.classList.remove("stale");
  figure.view = view;
  views.set(figure, { view, names: new Set((spec.params ?? []).map((param) => param.name)) });
  if (views.size === 1) performance.mark("ropescope:first-chart");
  if (choice) {
    plot.classList.add("picks");
    view.addEventListener("click", (_, item) => pick(section, headOf(item)));
  }
  return follow(figure);
}

/* The head that a mark stands for, as "L8 H1", or null. */
function headOf(item) {
  const datum = item?.datum?.datum ?? item?.datum;
  for (const name of [datum?.name, datum?.head, datum?.layer]) {
    const found = /^L(\d+)(?: H(\d+))?$/.exec(name ?? "");
    if (found) return headName(found[1], found[2] ?? 0);
  }
  return null;
}

/* Show in a chart what is chosen: a head, and a time of the film. Charts that are not drawn yet do so when they are. */
export async function follow(figure) {
  const shown = views.get(figure);
  if (!shown) return;
  for (const [name, value] of Object.entries(chosen(figure.closest(".run")))) {
    if (shown.names.has(name) && value !== undefined && shown.view.signal(name) !== value) shown.view.signal(name, value);
  }
  await shown.view.runAsync();
}

/* Draw all charts again, those in view at once. Until then the old pictures stay on the page, marked as stale. */
export function redraw() {
  for (const [figure, { view }] of views) {
    view.finalize();
    figure.querySelector(".plot").classList.add("stale");
    drawing.delete(figure);
    watcher.unobserve(figure);
    watcher.observe(figure);
  }
  views.clear();
}

/* A chart that is not on the page: light, with its title, and with what is chosen now. */
export async function viewForFile(figure) {
  const [spec, embed] = await Promise.all([specOf(figure, false, true), loadEngine()]);
  spec.background = "white";
  spec.padding = 14;
  const { view } = await embed(document.createElement("div"), spec, { ...SAFE, actions: false, renderer: "svg" });
  const names = new Set((spec.params ?? []).map((param) => param.name));
  for (const [name, value] of Object.entries(chosen(figure.closest(".run"))))
    if (names.has(name) && value !== undefined) view.signal(name, value);
  return view.runAsync();
}
