/* What is chosen in each section of the page, and the event by which all parts of the page share a chosen head. */

export const sections = [...document.querySelectorAll(".run")];

/* The part of the page whose data a chart shows: its run, also if the chart stands outside of it, or the findings. */
export function ownerOf(figure) {
  return figure.dataset.of ? document.getElementById(figure.dataset.of) : figure.closest("[data-payload]");
}

/* All charts of a run, in its section and outside of it. */
export function figuresOf(section) {
  const outside = [...document.querySelectorAll("figure[data-of]")].filter((one) => one.dataset.of === section.id);
  return [...section.querySelectorAll("figure[data-chart]"), ...outside];
}

/* Do something when a run is unfolded: at once if it is, and later only once. */
export function whenOpen(section, act) {
  const fold = section.querySelector(":scope > .fold");
  if (!fold || fold.open) act();
  else fold.addEventListener("toggle", act, { once: true });
}

const wanted = new Map(); // section -> the head that was last asked for
const picks = new Map(); // section -> the head that is shown
const times = new Map(); // section -> the time of the film

export const wantedHead = (section) => wanted.get(section);
export const wantHead = (section, name) => wanted.set(section, name);
export const setHead = (section, name) => picks.set(section, name);
export const setTime = (section, at) => times.set(section, at);

/* Values for the signals of charts, by their names. */
export const chosen = (section) => ({ picked: picks.get(section), at: times.get(section) });

export const headName = (layer, head) => `L${layer} H${head}`;

/* Layer and head of a name such as "L8 H1", or null. */
export function parsedHead(name) {
  const found = /^L(\d+) H(\d+)$/.exec(name ?? "");
  return found ? { layer: Number(found[1]), head: Number(found[2]) } : null;
}

/* Announce a head to everything that shows heads. */
export function pick(section, name) {
  const head = parsedHead(name);
  if (head) document.dispatchEvent(new CustomEvent("ropescope:head", { detail: { run: section.dataset.run, ...head } }));
}
