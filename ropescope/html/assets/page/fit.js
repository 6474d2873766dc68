/* Charts take the width there is: their plots are made wider or narrower, while text and marks keep their size. */

const LEAST = 150, MOST = 2.6; // pixels of the narrowest plot, and how much wider than it was made a plot may become

/* The widths of a chart that can be changed: values of signals by name. Widths that follow from their content cannot. */
export function widthsOf(spec) {
  const found = new Map();
  if (typeof spec.width === "number") found.set("width", spec.width);
  for (const { name, value } of spec.signals ?? []) if (/width$/i.test(name) && typeof value === "number") found.set(name, value);
  return found;
}

async function scaled(view, widths, factor) {
  for (const [name, value] of widths) view.signal(name, Math.round(value * factor));
  await view.resize().runAsync();
}

/* Resolves when a chart has the width of its box, as far as its plots stay readable. */
export async function fit(figure, view, widths) {
  const plot = figure.querySelector(".plot"), box = plot.clientWidth;
  const width = () => Number(plot.querySelector("svg").getAttribute("width"));
  if (widths.size && box) {
    await scaled(view, widths, 1);
    const first = width(), trial = Math.max(0.4, Math.min(MOST, box / first));
    await scaled(view, widths, trial);
    const slope = (width() - first) / (trial - 1);
    if (slope > 0) {
      const least = Math.min(1, LEAST / Math.min(...widths.values()));
      const factor = Math.max(least, Math.min(MOST, 1 + (box - first - 1) / slope));
      await scaled(view, widths, factor);
    }
  }
  // What cannot be made narrower shrinks while its text can be read; below that it scrolls in its box.
  const svg = plot.querySelector("svg"), natural = width(), most = widths.size ? 1 : 1.25;
  svg.style.width = `max(${Math.round(0.8 * natural)}px, min(100%, ${Math.round(most * natural)}px))`;
}
