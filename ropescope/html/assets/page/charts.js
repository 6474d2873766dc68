/* Charts: drawn when they come into view, drawn again in other colours, and told what is chosen. */

import { look } from "./look.js";
import { loadEngine, payload, SAFE } from "./payload.js";
import { fit, widthsOf } from "./fit.js";
import { chosen, headName, ownerOf, pick } from "./state.js";
import { specOf } from "./tables.js";

const NARROW = 640; // pixels of a window in which charts are laid out one below the other
const views = new Map(); // figure -> { view, names of its signals, its widths }
const drawing = new Map(); // figure -> promise of having been drawn

export const isDark = () => document.documentElement.dataset.theme === "dark";

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  },
  { rootMargin: "300px 0px" },
);

export function watchCharts() {
  for (const figure of document.querySelectorAll("figure[data-chart]")) watcher.observe(figure);
  let frame = 0;
  let before = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === before) return; // a phone's address bar comes and goes
    before = innerWidth;
    clearTimeout(frame);
    frame = setTimeout(() => views.forEach((shown, figure) => refit(figure, shown)), 150);
  });
  // What a reader sees without unfolding anything is there for printing, too.
  addEventListener("load", () => {
    const idle = window.requestIdleCallback ?? ((act) => setTimeout(act, 1500));
    const open = [...document.querySelectorAll("figure.small, figure[data-of]")];
    const next = () => {
      const figure = open.shift();
      if (figure) draw(figure).then(() => idle(next));
    };
    setTimeout(() => idle(next), 2500);
  });
}

const isNarrow = () => innerWidth < NARROW;

async function refit(figure, shown) {
  if (views.get(figure) !== shown || !figure.checkVisibility()) return;
  if (isNarrow() !== shown.narrow) {
    forget(figure, shown);
    await draw(figure);
  } else await fit(figure, shown.view, shown.widths);
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
  const plot = figure.querySelector(".plot"), section = ownerOf(figure);
  const dark = isDark(), narrow = isNarrow();
  const [spec, embed, { choice }] = await Promise.all([specOf(figure, dark, false, narrow), loadEngine(), payload(section)]);
  const holder = document.createElement("div");
  plot.replaceChildren(holder);
  const options = { ...SAFE, actions: false, renderer: "svg", config: look(dark, narrow), tooltip: { theme: dark ? "dark" : "light" } };
  const { view, vgSpec } = await embed(holder, spec, options), widths = widthsOf(vgSpec);
  await fit(figure, view, widths);
  if (dark !== isDark()) {
    view.finalize(); // the theme changed meanwhile
    return drawNow(figure);
  }
  plot.classList.add("drawn");
  plot.classList.remove("stale");
  figure.view = view;
  views.set(figure, { view, widths, narrow, names: new Set((spec.params ?? []).map((param) => param.name)) });
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
  for (const [name, value] of Object.entries(chosen(ownerOf(figure)))) {
    if (shown.names.has(name) && value !== undefined && shown.view.signal(name) !== value) shown.view.signal(name, value);
  }
  await shown.view.runAsync();
}

/* Draw all charts again, those in view at once. Until then the old pictures stay on the page, marked as stale. */
export function redraw() {
  for (const [figure, shown] of [...views]) {
    forget(figure, shown);
    watcher.unobserve(figure);
    watcher.observe(figure);
  }
}

function forget(figure, { view }) {
  view.finalize();
  figure.querySelector(".plot").classList.add("stale");
  drawing.delete(figure);
  views.delete(figure);
}

/* A chart that is not on the page: light, with its title, and with what is chosen now. */
export async function viewForFile(figure) {
  const [spec, embed] = await Promise.all([specOf(figure, false, true), loadEngine()]);
  spec.background = "white";
  spec.padding = 14;
  const { view } = await embed(document.createElement("div"), spec, { ...SAFE, actions: false, renderer: "svg" });
  const names = new Set((spec.params ?? []).map((param) => param.name));
  for (const [name, value] of Object.entries(chosen(ownerOf(figure))))
    if (names.has(name) && value !== undefined) view.signal(name, value);
  return view.runAsync();
}
