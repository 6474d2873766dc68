/* The row of controls above the tokens, and the field to type an order into. */

import { atMost, button, element, labelled, short } from "./dom.js";
import { parsedRow, shuffled } from "./orders.js";

const MODES = { blocks: "sentences", tokens: "their tokens", any: "any token" };

export class Controls {
  constructor(game) {
    this.game = game;
    this.subject = element("select", { onchange: () => game.takeSubject(this.subject.selectedIndex) });
    this.subject.append(...game.subjects.map((one) => element("option", {}, short(one.name))));
    this.layer = element("select", { onchange: () => game.pick(this.layer.selectedIndex, game.head) });
    this.head = element("select", { onchange: () => game.pick(game.layer, this.head.selectedIndex) });
    this.examples = element("div", { class: "buttons" });
    this.modes = element("div", { class: "modes", role: "radiogroup", "aria-label": "What moves" });
    this.undo = button("Undo", "Undo the last move (Ctrl+Z)", () => game.travel(-1));
    this.redo = button("Redo", "Redo it (Ctrl+Y)", () => game.travel(1));
    this.reset = button("Reset", "Back to the real order", () => game.take(game.row.map((_, k) => k)));
    this.about = element("p", { class: "about" });
    const subjects = labelled("Prompt", this.subject);
    subjects.hidden = game.subjects.length < 2;
    this.node = element(
      "div",
      { class: "controls" },
      subjects,
      labelled("Layer", this.layer),
      labelled("Head", this.head),
      element("div", { class: "field" }, element("span", {}, "Show a head that is"), this.examples),
      element("div", { class: "field" }, element("span", {}, "Move"), this.modes),
      element(
        "div",
        { class: "buttons" },
        button("Shuffle", "A random order", () => game.take(shuffled(game.row))),
        button("Reverse", "The last comes first", () => game.take([...game.row].reverse())),
        this.undo,
        this.redo,
        this.reset,
      ),
    );
  }

  /* Everything that depends on the prompt alone; `examples` are [kind, layer, head]. */
  showSubject(index, modes, examples) {
    const { game } = this, { subject } = game;
    this.subject.selectedIndex = index;
    this.layer.replaceChildren(...subject.layers.map((layer) => element("option", {}, String(layer.layer))));
    this.modes.replaceChildren(
      ...modes.map((mode) => {
        const radio = element("input", { type: "radio", name: `${game.id}-mode`, value: mode, onchange: () => game.takeMode(mode) });
        return element("label", {}, radio, element("span", {}, MODES[mode]));
      }),
    );
    this.examples.replaceChildren(
      ...examples.map(([kind, n, h]) => element("button", { type: "button", class: kind, onclick: () => game.pick(n, h) }, kind)),
    );
    const { model, prompts } = subject.about, left = subject.layersOfModel.length - subject.layers.length;
    this.about.textContent =
      [model, prompts].filter(Boolean).map((part) => short(String(part), 200)).join("; ") +
      `. Stored as ${subject.layers[0].keys.type}: over ${subject.check.orders} orders, the attention of all heads differs from full ` +
      `precision by ${atMost(subject.check.attention)}, their scores by ${atMost(subject.check.scores)}.` +
      (left ? ` ${left} layers are left out to save space.` : "");
  }

  /* The heads of the chosen layer. */
  showLayer() {
    const { subject, layer } = this.game;
    this.head.replaceChildren(...Array.from({ length: subject.layers[layer].heads }, (_, k) => element("option", {}, String(k))));
  }

  showChoice() {
    const { game } = this;
    this.layer.selectedIndex = game.layer;
    this.head.selectedIndex = game.head;
    for (const radio of this.modes.querySelectorAll("input")) radio.checked = radio.value === game.mode;
  }

  showHistory() {
    const { game } = this;
    this.undo.disabled = game.now === 0;
    this.redo.disabled = game.now === game.history.length - 1;
    this.reset.disabled = !game.orderScore;
  }
}

export class TypedOrder {
  constructor(game) {
    this.game = game;
    const id = `${game.id}-order`;
    this.input = element("input", { type: "text", spellcheck: "false", autocomplete: "off", id });
    this.error = element("p", { class: "error", role: "alert" });
    const form = element("form", { class: "order" }, element("label", { for: id }, "Any order"), this.input);
    form.append(element("button", { type: "submit" }, "Set"));
    form.addEventListener("submit", (event) => this.submit(event));
    this.node = element("div", { class: "typed" }, form, this.error);
  }

  submit(event) {
    event.preventDefault();
    const m = this.game.spans.length, row = parsedRow(this.input.value, m);
    this.error.textContent = row ? "" : `Give the numbers 0 to ${m - 1}, each once: the first number is the unit that stands first.`;
    if (row) this.game.take(row);
  }

  draw() {
    if (document.activeElement !== this.input) this.input.value = this.game.row.join(" ");
  }
}
