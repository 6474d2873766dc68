/* Elements, text and numbers for display. Text only ever becomes text nodes and attributes, never HTML. */

/* An element with attributes and children; an attribute that starts with "on" is a listener. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function button(label, title, action) {
  return element("button", { type: "button", title, onclick: action }, label);
}

export function labelled(label, select) {
  select.setAttribute("aria-label", label);
  return element("label", { class: "field" }, element("span", {}, label), select);
}

export function panel(title, ...inner) {
  return element("section", { class: "panel" }, element("h4", {}, title), ...inner);
}

/* The text of a token, with signs for white space that could not be seen. */
export function shown(text) {
  if (text === "") return "∅";
  return text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length));
}

/* The first characters of a text. */
export function short(text, most = 60) {
  const points = Array.from(text.slice(0, 4 * most));
  return points.length > most ? `${points.slice(0, most).join("")}…` : points.join("");
}

export const percent = (x) => (x >= 0.0995 ? `${Math.round(x * 100)}` : x >= 0.00095 ? (x * 100).toFixed(1) : "");
export const atMost = (x) => (x === 0 ? "nothing" : `at most ${x.toExponential(0)}`);
export const number = (x) => (x === null || Number.isNaN(x) ? "–" : x.toFixed(3));
