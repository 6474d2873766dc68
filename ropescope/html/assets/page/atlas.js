/* The atlas: sorted by what is asked for, and two of its models side by side. */

import { payload } from "./payload.js";

const SVG = "http://www.w3.org/2000/svg";
const KINDS = ["positional", "mixed", "symbolic"];

/* An element with attributes and children; text is never markup. */
function made(name, attributes = {}, ...children) {
  const space = ["svg", "path", "line", "polyline", "g"].includes(name) ? SVG : "http://www.w3.org/1999/xhtml";
  const element = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function sort(box, by) {
  const cards = [...box.querySelectorAll(".at-card")];
  const size = (card) => Number(card.dataset.size), names = (a, b) => a.dataset.title.localeCompare(b.dataset.title, "en");
  const ways = {
    family: (a, b) => a.dataset.family.localeCompare(b.dataset.family, "en") || size(a) - size(b) || names(a, b),
    size: (a, b) => size(a) - size(b) || names(a, b),
    symbolic: (a, b) => Number(b.dataset.symbolic) - Number(a.dataset.symbolic) || names(a, b),
    title: names,
  };
  box.querySelector(".at-cards").append(...cards.sort(ways[by]));
}

function plane(model) {
  const dots = KINDS.map((kind, n) => {
    const d = model.points.filter((point) => point[2] === n).map(([x, y]) => `M${100 * x} ${100 * (1 - y)}h0`);
    return made("path", { class: `at-dots at-${kind}`, d: d.join("") });
  });
  return made(
    "svg", { class: "at-plane", viewBox: "-4 -4 108 108", role: "img", "aria-label": `Heads of ${model.title}` },
    made("path", { class: "at-frame", d: "M0 0H100V100H0Z" }), made("path", { class: "at-empty", d: "M0 0V100H100Z" }), ...dots,
  );
}

/* Median of symbolic minus positional over depth, a line for each of two models. */
function depth(models) {
  const lines = models.map(({ depth: line }, n) =>
    made("polyline", { class: `at-line at-line-${n}`, points: line.map(([x, y]) => `${200 * x},${50 - 50 * y}`).join(" ") }),
  );
  return made(
    "svg", { class: "at-depth", viewBox: "-2 -2 204 104", preserveAspectRatio: "none", role: "img", "aria-label": "Symbolic minus positional over depth" },
    made("path", { class: "at-frame", d: "M0 0H200V100H0Z" }), made("line", { class: "at-zero", x1: 0, x2: 200, y1: 50, y2: 50 }), ...lines,
  );
}

function difference([a, b]) {
  if (a[1] === null || b[1] === null) return "";
  const by = b[1] - a[1], text = a[2].includes("%") ? `${Math.round(100 * by)} points` : Number.isInteger(by) ? by.toLocaleString("en") : by.toFixed(2);
  return (by > 0 ? `+${text}` : text).replace("-", "\u2212");
}

function numbers(models) {
  const head = made("tr", {}, ...["", ...models.map((model) => model.title), "difference"].map((text) => made("th", { scope: "col" }, text)));
  const rows = models[0].numbers.map((row, n) => {
    const both = models.map((model) => model.numbers[n]);
    return made("tr", {}, made("th", { scope: "row" }, row[0]), ...both.map((one) => made("td", {}, one[2])), made("td", {}, difference(both)));
  });
  return made("div", { class: "at-scroll", tabindex: 0, role: "region", "aria-label": "Numbers of both models" }, made("table", {}, made("thead", {}, head), made("tbody", {}, ...rows)));
}

function compare(models) {
  const planes = models.map((model, n) => made("figure", {}, made("figcaption", {}, made("i", { class: `at-key at-key-${n}` }), model.title), plane(model)));
  const line = made("figure", { class: "at-wide" }, made("figcaption", {}, "From the first layer (left) to the last: above the middle, heads are more symbolic; below, more positional."), depth(models));
  return [...planes, line, numbers(models)];
}

async function start(box) {
  const { models } = await payload(box), both = box.querySelector(".at-both"), output = box.querySelector("output");
  let chosen = [];
  for (const card of box.querySelectorAll(".at-card"))
    card.querySelector(".at-choose").addEventListener("click", () => {
      const n = Number(card.dataset.n);
      chosen = chosen.includes(n) ? chosen.filter((one) => one !== n) : [...chosen, n].slice(-2);
      for (const other of box.querySelectorAll(".at-card")) {
        const is = chosen.includes(Number(other.dataset.n));
        other.toggleAttribute("data-chosen", is);
        other.querySelector(".at-choose").setAttribute("aria-pressed", String(is));
      }
      both.hidden = chosen.length < 2;
      both.replaceChildren(...(chosen.length < 2 ? [] : compare(chosen.map((one) => models[one]))));
      output.textContent = chosen.length < 2 ? `Choose ${chosen.length ? "one more" : "two"} to compare.` : `${models[chosen[0]].title} and ${models[chosen[1]].title}`;
      if (chosen.length === 2) both.scrollIntoView({ block: "nearest" });
    });
  box.dataset.ready = "yes";
}

export function startAtlas() {
  for (const box of document.querySelectorAll(".at")) {
    box.querySelector("select").addEventListener("change", (event) => sort(box, event.target.value));
    start(box);
  }
}
