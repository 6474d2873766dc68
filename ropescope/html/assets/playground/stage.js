/* The tokens in their places, each under a bar with its weight. */

import { element, percent, short, shown } from "./dom.js";

const FOLDED = 3; // this many fixed tokens in a row are shown; more are folded
const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

/* Write to the page only what is not there already. */
function put(place, key, value, write) {
  if (place.put[key] === value) return;
  place.put[key] = value;
  write(value);
}

function makePlace(n) {
  const text = element("span", { class: "text", dir: "auto" });
  const token = element("button", { type: "button", class: "token" }, text);
  const now = element("i", { class: "now" }), stays = element("i", { class: "stays" }), follows = element("i", { class: "follows" });
  const value = element("span", { class: "value" });
  const bar = element("div", { class: "bar" }, now, stays, follows, value);
  const node = element("div", { class: "place", "data-place": n }, bar, token, element("span", { class: "index" }, String(n)));
  return { node, token, text, now, stays, follows, value, put: {} };
}

export class Stage {
  constructor(game) {
    this.game = game;
    this.folding = true;
    this.node = element("div", { class: "stage", role: "group", "aria-label": "Tokens in their places" });
    this.scale = element("span", {});
    this.foldBox = element("input", { type: "checkbox", checked: true, onchange: () => this.takeFold(this.foldBox.checked) });
    this.foldLabel = element("label", { class: "check" }, this.foldBox, " fold fixed tokens");
    this.legend = element(
      "p",
      { class: "legend" },
      element("span", {}, element("i", { class: "key now" }), "attention now, in %"),
      element("span", {}, element("i", { class: "key stays" }), "if it stayed in its place"),
      element("span", {}, element("i", { class: "key follows" }), "if it followed its token"),
      this.scale,
      this.foldLabel,
    );
    for (const name of ["pointerover", "focusin"])
      this.node.addEventListener(name, (event) => {
        const p = this.placeOf(event.target);
        if (p >= 0) this.tell(p);
      });
  }

  showSubject() {
    this.places = this.game.subject.tokens.map((_, place) => makePlace(place));
    this.folds = [0, 1].map(() => {
      const button = element("button", { type: "button", class: "fold", onclick: () => this.takeFold(false) });
      return { button, node: element("div", { class: "place folded" }, button), value: element("span", { class: "value" }) };
    });
    this.node.replaceChildren(...this.places.map((place) => place.node));
    this.drawn = null; // the order on the page
    this.offsets = null; // left, top, width and height of each place; null while nothing is laid out
  }

  // ---- Folding.

  takeFold(on) {
    this.folding = on;
    this.foldBox.checked = on;
    this.drawFolds();
    this.game.render();
  }

  /* Fixed tokens before and after all that can move are folded away, except for the first token and the query. */
  drawFolds() {
    const { spans, subject } = this.game, { places } = this;
    const ranges = spans.length ? [[1, spans[0][0]], [spans[spans.length - 1][1], subject.query]] : [];
    this.foldLabel.hidden = !ranges.some(([start, stop]) => stop - start > FOLDED);
    for (const { node } of places) node.hidden = false;
    for (const { node } of this.folds) node.remove();
    if (this.folding)
      ranges.forEach(([start, stop], n) => {
        if (stop - start <= FOLDED) return;
        for (let p = start; p < stop; p++) places[p].node.hidden = true;
        const fold = this.folds[n], text = subject.tokens.slice(start, stop).map((token) => short(token, 20)).join("");
        const excerpt = element("span", { class: "text", dir: "auto" }, short(shown(text), 40));
        fold.button.title = `${short(text, 400)}\nClick to unfold`;
        fold.button.replaceChildren(element("b", {}, `${stop - start} tokens`), excerpt, fold.value);
        fold.range = [start, stop];
        places[stop].node.before(fold.node);
      });
    this.measure();
  }

  // ---- Drawing.

  measure() {
    const cells = this.places.map(({ node }) => [node.offsetLeft, node.offsetTop, node.offsetWidth, node.offsetHeight]);
    this.offsets = cells.some(([, , width]) => width > 0) ? cells : null;
  }

  /* How many places stand in a row. */
  columns() {
    const cells = (this.offsets ?? []).filter(([, , width]) => width > 0);
    return Math.max(1, cells.filter(([, top]) => top === cells[0][1]).length);
  }

  draw() {
    const { before, after, order, slots } = this.game;
    let top = 0;
    slots.forEach((slot, p) => {
      if (slot >= 0) top = Math.max(top, before[p], after[p], before[order[p]]);
    });
    top = top || 1;
    this.scale.textContent = `a full bar is ${top >= 0.001 ? (100 * top).toPrecision(2) : (100 * top).toExponential(1)} %`;
    const from = new Map((this.drawn ?? []).map((content, place) => [content, place]));
    for (let p = 0; p < order.length; p++) {
      this.drawBar(p, top);
      this.drawToken(p);
      this.glide(p, from.get(order[p]));
    }
    for (const { node, range, value } of this.folds)
      if (node.isConnected) value.textContent = `${percent(after.slice(...range).reduce((a, b) => a + b, 0)) || "< 0.1"} %`;
    this.drawn = order;
    if (!this.offsets) this.measure();
  }

  drawBar(p, top) {
    const { before, after, order, slots } = this.game, place = this.places[p];
    const high = (weight) => Math.min(1, weight / top);
    const now = high(after[p]), stays = high(before[p]), follows = high(before[order[p]]);
    put(place, "now", `scaleY(${now})`, (to) => (place.now.style.transform = to));
    put(place, "cut", after[p] > top * 1.0001, (on) => place.now.classList.toggle("cut", on));
    put(place, "stays", `translateY(${-100 * stays}%)`, (to) => (place.stays.style.transform = to));
    put(place, "follows", `translateY(${-100 * follows}%)`, (to) => (place.follows.style.transform = to));
    let lift = now; // the number stands on its bar, or on a line just above it
    if (slots[p] >= 0) for (const line of [stays, follows].sort((a, b) => a - b)) if (line > lift && line < lift + 0.3) lift = line;
    put(place, "lift", `translateY(${-100 * lift}%)`, (to) => (place.value.style.transform = to));
    put(place, "value", percent(after[p]), (text) => (place.value.textContent = text));
  }

  drawToken(p) {
    const { after, order, slots, spans, row, subject, chosen, moving } = this.game, place = this.places[p], { token } = place;
    const content = order[p], slot = slots[p], unit = slot < 0 ? null : row[slot], span = unit === null ? null : spans[unit];
    put(place, "content", content, () => {
      place.text.textContent = shown(subject.tokens[content]);
      const block = subject.blockOf.get(content);
      if (block === undefined) token.style.removeProperty("--block");
      else token.style.setProperty("--block", block);
      token.classList.toggle("inblock", block !== undefined);
    });
    const long = span !== null && span[1] - span[0] > 1;
    const flags = {
      locked: slot < 0,
      query: p === subject.query,
      first: long && content === span[0],
      last: long && content === span[1] - 1,
      inner: long && content > span[0] && content < span[1] - 1,
      moved: content !== p,
      held: unit !== null && unit === moving.held(),
      chosen: unit !== null && unit === chosen,
    };
    for (const [name, on] of Object.entries(flags)) put(place, name, on, () => token.classList.toggle(name, on));
    put(place, "quiet", slot < 0, (on) => {
      place.node.classList.toggle("quiet", on);
      token.setAttribute("aria-disabled", String(on));
    });
    // The Tab key stops once per unit, at its first token.
    put(place, "tab", slot >= 0 && content === span[0] ? 0 : -1, (index) => (token.tabIndex = index));
    const label = `${short(shown(subject.tokens[content]))}, place ${p}, attention ${(100 * after[p]).toFixed(1)} percent${slot < 0 ? ", fixed" : ""}`;
    put(place, "label", label, (text) => token.setAttribute("aria-label", text));
  }

  /* A token that changed its place moves there from the old one. */
  glide(p, before) {
    if (before === undefined || before === p || !this.offsets || stillness.matches) return;
    const place = this.places[p], [x0, y0] = this.offsets[before], [x1, y1] = this.offsets[p];
    place.gliding?.cancel();
    const frames = [{ transform: `translate(${x0 - x1}px, ${y0 - y1}px)` }, { transform: "none" }];
    place.gliding = place.token.animate(frames, { duration: 160, easing: "ease-out" });
  }

  // ---- What is under the pointer or has the focus.

  /* The number of the place that an element is in, or -1; a fold is in none. */
  placeOf(target) {
    const node = target instanceof Element ? target.closest(".place[data-place]") : null;
    return node ? Number(node.dataset.place) : -1;
  }

  tell(p) {
    const { subject, order, before, after, slots, layer, moving } = this.game;
    if (moving.held() !== null) return;
    const content = order[p], moved = content === p ? "" : `, now at place ${p}`;
    const weight = (x) => `${(100 * x).toPrecision(3)} %`;
    let why = "";
    if (slots[p] < 0) {
      if (p === subject.query) why = " It is the query, which is fixed at the end.";
      else why = p < subject.first(layer) ? " It is outside this layer's window." : " It belongs to no sentence and is fixed.";
    }
    this.game.say(
      `“${short(shown(subject.tokens[content]))}”, token ${content}${moved}: attention here ${weight(before[p])} → ${weight(after[p])}; ` +
        `the token had ${weight(before[content])} in its own place.${why}`,
    );
  }
}
