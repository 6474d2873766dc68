/* Two heads of a model on a short prompt: sentences can be moved, and both heads' attention to them is shown. */

import { element } from "./dom.js";
import { movedTo, orderOf, slotsOf } from "./orders.js";
import { attention } from "./scores.js";
import { Subject } from "./subject.js";

const KINDS = ["positional", "symbolic"], SIDES = ["left", "right"];
const FIRST = 1400, PAUSE = 1900; // milliseconds before a demonstration begins, and between its moves
const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

const percent = (x) => `${Math.round(100 * x)}\u00a0%`;
const most = (values) => values.indexOf(Math.max(...values));

export class Duet {
  constructor(root) {
    this.root = root;
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    this.subject = new Subject(data);
    this.heads = data.layers.map((layer, n) => ({ name: `layer ${layer.layer}, head ${layer.head}`, logit: this.subject.logit(n, 0, null) }));
    this.spans = this.subject.blocks;
    this.texts = this.spans.map(([from, to]) => this.subject.tokens.slice(from, to).join("").trim());
    this.start = this.spans.map((_, k) => k);
    this.before = this.weights(this.start);
    this.tops = this.before.map((weights) => 1.04 * Math.max(...weights));
    this.drag = null;
    this.showing = null; // one object per demonstration
    this.build(data.heads_of_model);
    this.take(this.start);
    this.watch();
  }

  /* The weight of each place in either head, when place k holds sentence row[k]. */
  weights(row) {
    const { subject, spans } = this, order = orderOf(subject.size, spans, row), slots = slotsOf(subject.size, spans, row);
    return this.heads.map(({ logit }) => {
      const sums = spans.map(() => 0);
      attention(logit, order, -Infinity).forEach((weight, p) => slots[p] >= 0 && (sums[slots[p]] += weight));
      return sums;
    });
  }

  build(all) {
    const { root, spans, texts, heads, subject } = this;
    const head = (n, what) => element("div", {}, element("b", {}, what), heads[n].name);
    const names = element("div", { class: "names" }, head(0, "looks at a place"), element("div", {}, "drag a sentence (dashed: before)"), head(1, "looks at a thing"));
    this.bars = SIDES.map((side) => spans.map(() => this.bar(side)));
    const rows = spans.map((_, k) => element("div", { class: "row" }, this.bars[0][k].node, element("div", {}), this.bars[1][k].node));
    this.chips = texts.map((text, unit) => this.chip(text, unit));
    this.list = element("div", { role: "group", "aria-label": "Sentences, in their order" }, ...this.chips);
    this.field = element("div", { class: "field" }, ...rows, element("div", { class: "chips" }, this.list));
    const rest = subject.tokens.slice(spans[spans.length - 1][1]).join("").split("\n").pop().trim();
    const asked = element("p", { class: "asked" }, element("q", {}, `${rest} …`));
    this.told = element("p", { class: "told", "aria-live": "polite" });
    this.play = element("button", { type: "button", onclick: () => (this.showing ? this.stop() : this.demonstrate(Infinity)) });
    this.reset = element("button", { type: "button", onclick: () => this.back() }, "Back to the start");
    const what = element(
      "p",
      { class: "standfirst" },
      `Two of the ${all} attention heads of ${root.dataset.model} read “${rest} …”. Drag a sentence: one keeps looking at the same place, the other follows the sentence.`,
    );
    root.append(
      what,
      element("div", { class: "stage" }, names, this.field, asked),
      this.told,
      element("p", { class: "buttons" }, this.play, this.reset),
    );
    this.showPlay();
  }

  bar(side) {
    const was = element("i", { class: "was" }), now = element("i", {}), value = element("output", { "aria-hidden": "true" });
    return { node: element("div", { class: `bar ${side}` }, was, now, value), was, now, value };
  }

  chip(text, unit) {
    const chip = element("button", { type: "button", class: "chip", "data-unit": unit }, element("span", { dir: "auto" }, text), element("i", { class: "grip" }));
    return chip;
  }

  // ---- Showing an order.

  take(row) {
    this.row = row;
    const now = this.weights(row);
    SIDES.forEach((side, n) => {
      this.bars[n].forEach(({ was, now: bar, value }, k) => {
        const share = Math.min(1, now[n][k] / this.tops[n]);
        was.style.transform = `scaleX(1) translateX(${(side === "left" ? 100 : -100) * (1 - Math.min(1, this.before[n][k] / this.tops[n]))}%)`;
        bar.style.transform = `scaleX(${share})`;
        const shift = share * bar.offsetWidth;
        value.style.transform = `translateX(${side === "left" ? -shift : shift}px)`;
        value.textContent = percent(now[n][k]);
      });
    });
    this.chips.forEach((chip, unit) => {
      const slot = row.indexOf(unit);
      if (chip !== this.drag?.chip) chip.style.transform = `translateY(${100 * slot}%) translateY(${0.5 * slot}rem)`;
      chip.classList.toggle("moved", slot !== unit);
      chip.setAttribute("aria-label", `${this.texts[unit]} Place ${slot + 1} of ${row.length}; arrow keys move it.`);
    });
    this.moved = row.some((unit, k) => unit !== k);
    this.reset.disabled = !this.moved;
    this.tell(now);
  }

  tell(now) {
    const { row, texts, before, told } = this;
    const place = most(now[0]), slot = most(now[1]), unit = row[slot];
    if (!this.moved) {
      told.replaceChildren(
        element("b", {}, `${percent(now[0][place])} of one head’s attention is on place ${place + 1}`),
        ", ",
        element("b", {}, `${percent(now[1][slot])} of the other’s on “${texts[unit]}”`),
        ". Which of them moves with the words?",
      );
      return;
    }
    told.replaceChildren(
      element("b", {}, `The blue head still looks at place ${place + 1}`),
      ` (${percent(before[0][place])} before, ${percent(now[0][place])} now), whatever stands there. `,
      element("b", {}, `The orange head ${slot === unit ? "looks at" : "has followed"} “${texts[unit]}”`),
      ` (${percent(before[1][unit])} before, ${percent(now[1][slot])} now).`,
    );
    if (place !== most(before[0])) told.firstChild.textContent = `The blue head looks at place ${place + 1}`;
    if (unit !== most(before[1])) told.childNodes[2].textContent = `The orange head looks at “${texts[unit]}”`;
  }

  back() {
    this.stop();
    this.take(this.start);
  }

  // ---- Moving by hand.

  watch() {
    const { list } = this;
    list.addEventListener("pointerdown", (event) => this.press(event));
    list.addEventListener("pointermove", (event) => this.follow(event));
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) list.addEventListener(name, () => this.drop());
    list.addEventListener("click", (event) => this.click(event));
    list.addEventListener("keydown", (event) => this.key(event));
    list.addEventListener("focusout", (event) => list.contains(event.relatedTarget) || list.append(...this.row.map((unit) => this.chips[unit])));
    new ResizeObserver(() => this.take(this.row)).observe(this.field);
    if (!stillness.matches) setTimeout(() => this.showing || this.moved || this.touched || this.demonstrate(2), FIRST);
  }

  height() {
    return this.field.clientHeight / this.row.length;
  }

  press(event) {
    const chip = event.target.closest(".chip");
    this.touched = true;
    this.stop();
    if (!chip || event.button !== 0 || (event.pointerType === "touch" && !event.target.matches(".grip"))) return;
    const unit = Number(chip.dataset.unit), slot = this.row.indexOf(unit);
    this.drag = { chip, unit, slot, from: this.row, y: event.clientY, id: event.pointerId, begun: false };
  }

  follow(event) {
    const { drag } = this;
    if (!drag || event.pointerId !== drag.id) return;
    const dy = event.clientY - drag.y;
    if (!drag.begun) {
      if (Math.abs(dy) < 4) return;
      drag.begun = true;
      this.list.setPointerCapture(drag.id);
      drag.chip.classList.add("held");
      this.root.classList.add("dragging");
    }
    const top = Math.max(-0.4, Math.min(this.row.length - 0.6, drag.slot + dy / this.height()));
    drag.chip.style.transform = `translateY(${top * this.height()}px)`;
    const row = movedTo(drag.from, drag.slot, Math.max(0, Math.min(this.row.length - 1, Math.round(top))));
    if (row.some((unit, k) => unit !== this.row[k])) this.take(row);
  }

  drop() {
    const { drag } = this;
    this.drag = null;
    if (!drag?.begun) return;
    drag.chip.classList.remove("held");
    this.root.classList.remove("dragging");
    this.dropped = performance.now();
    this.take(this.row);
  }

  /* A click moves a sentence to the other end, for those who cannot drag. */
  click(event) {
    const chip = event.target.closest(".chip");
    if (!chip || performance.now() - (this.dropped ?? -1000) < 300) return;
    this.touched = true;
    this.stop();
    const slot = this.row.indexOf(Number(chip.dataset.unit));
    this.take(movedTo(this.row, slot, slot === 0 ? this.row.length - 1 : 0));
  }

  key(event) {
    const chip = event.target.closest(".chip");
    if (!chip) return;
    const slot = this.row.indexOf(Number(chip.dataset.unit)), last = this.row.length - 1;
    const to = { ArrowUp: slot - 1, ArrowDown: slot + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.touched = true;
    this.stop();
    this.take(movedTo(this.row, slot, Math.max(0, Math.min(last, to))));
  }

  // ---- Showing how it works.

  showPlay() {
    this.play.textContent = this.showing ? "❚❚ Stop" : "▶ Show me";
    this.play.setAttribute("aria-pressed", String(Boolean(this.showing)));
    this.told.setAttribute("aria-live", this.showing ? "off" : "polite");
  }

  stop() {
    this.showing = null;
    this.showPlay();
  }

  /* Move the sentence that the symbolic head looks at: up, down, and home. */
  async demonstrate(rounds) {
    const mine = (this.showing = {}), unit = most(this.before[1]), last = this.start.length - 1;
    const ends = unit > last / 2 ? [0, last, unit] : [last, 0, unit];
    this.showPlay();
    for (let n = 0; n < rounds * ends.length && this.showing === mine && this.root.isConnected; n++) {
      if (!document.hidden) this.take(movedTo(this.start, unit, ends[n % ends.length]));
      await new Promise((done) => setTimeout(done, PAUSE));
    }
    if (this.showing === mine) this.stop();
  }

  // ---- For tests.

  state() {
    const { row, before, heads } = this;
    return { row: [...row], before, now: this.weights(row), heads: heads.map(({ name }) => name), kinds: KINDS, showing: Boolean(this.showing) };
  }
}
