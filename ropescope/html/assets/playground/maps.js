/* Maps of all heads: one of their scores over all swaps, one of what they do in the order that is shown. */

import { leaning } from "./colours.js";
import { element, number, panel } from "./dom.js";
import { logTotalOf, orderScores, swapScores, unitLogits } from "./scores.js";

const SLICE = 6; // milliseconds of work before the page gets a turn

export class HeadMaps {
  constructor(game) {
    this.game = game;
    this.done = false;
    this.job = null; // the newest computation of the first map; older ones stop
    this.frame = 0;
    this.text = element("p", { class: "small", "aria-live": "off" });
    this.swaps = this.map("over all swaps");
    this.order = this.map("in this order");
    this.node = panel("All heads", element("div", { class: "maps" }, this.swaps.node, this.order.node), this.text);
  }

  map(caption) {
    const canvas = element("canvas", { class: "map", role: "img", "aria-label": `Map of heads, ${caption}` });
    const map = { canvas, node: element("figure", {}, canvas, element("figcaption", {}, caption)), values: [] };
    canvas.addEventListener("click", (event) => {
      const found = this.headAt(canvas, event);
      if (found) this.game.pick(...found);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [n, h] = this.headAt(canvas, event) ?? [-1, -1], scores = map.values[n]?.[h];
      if (!scores) return;
      const name = `L${this.game.subject.layers[n].layer} H${h}`;
      this.text.textContent = `${name}, ${caption}: positional ${number(scores.positional)}, symbolic ${number(scores.symbolic)}`;
    });
    canvas.addEventListener("pointerleave", () => this.describe());
    return map;
  }

  columns() {
    return Math.max(...this.game.subject.layers.map((layer) => layer.heads));
  }

  headAt(canvas, event) {
    const box = canvas.getBoundingClientRect(), { layers } = this.game.subject;
    const n = Math.floor(((event.clientY - box.top) / box.height) * layers.length);
    const h = Math.floor(((event.clientX - box.left) / box.width) * this.columns());
    return layers[n] && h >= 0 && h < layers[n].heads ? [n, h] : null;
  }

  /* Score all heads, a few milliseconds at a time so that the page stays responsive. */
  start() {
    const { subject, mode, tau, gate } = this.game;
    const wanted = [subject, mode, tau, JSON.stringify(gate)];
    if (this.job && wanted.every((part, k) => part === this.job.wanted[k])) {
      this.draw(this.swaps);
      return;
    }
    const job = (this.job = { wanted }), values = (this.swaps.values = subject.layers.map(() => []));
    this.order.values = subject.layers.map(() => []);
    const todo = subject.layers.flatMap((layer, n) => Array.from({ length: layer.heads }, (_, h) => [n, h]));
    this.done = false;
    const work = () => {
      if (job !== this.job) return;
      const stop = performance.now() + SLICE;
      do {
        const [n, h] = todo.shift(), spans = subject.spans(n, mode), logit = subject.logit(n, h, gate);
        values[n][h] = swapScores(unitLogits(logit, spans), spans.length, logTotalOf(subject, n, h, logit), tau);
      } while (todo.length && performance.now() < stop);
      this.draw(this.swaps);
      if (todo.length) setTimeout(work, 12);
      else {
        this.done = true;
        this.scoreOrder();
        this.describe();
      }
    };
    setTimeout(work, 30);
    this.describe();
  }

  /* Score all heads in the order that is shown, at most once per frame. */
  startOrder() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.scoreOrder();
    });
  }

  /* This needs the factors of all layers, which the other map has computed. */
  scoreOrder() {
    if (!this.done) return;
    const { subject, row, gate, spans, layer: shown } = this.game, first = subject.first(shown);
    const moves = row.some((unit, k) => unit !== k);
    this.order.values = subject.layers.map((layer, n) => {
      const same = moves && subject.first(n) === first; // with another window other tokens can move
      return Array.from({ length: layer.heads }, (_, h) => (same ? orderScores(subject.logit(n, h, gate), spans, row, 0) : null));
    });
    this.draw(this.order);
  }

  draw(map) {
    const { subject, layer: shown, head, colours } = this.game, { layers } = subject, columns = this.columns(), { canvas } = map;
    const wide = Math.max(16, Math.round(160 / columns)), tall = layers.length > 16 ? 14 : 20;
    if (canvas.width !== columns * wide || canvas.height !== layers.length * tall) {
      canvas.width = columns * wide;
      canvas.height = layers.length * tall;
      canvas.style.aspectRatio = `${columns * wide} / ${layers.length * tall}`;
    }
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    layers.forEach((layer, n) => {
      for (let h = 0; h < layer.heads; h++) {
        const scores = map.values[n]?.[h];
        context.fillStyle = scores ? leaning(scores.positional, scores.symbolic) : "rgba(128,128,128,0.18)";
        context.fillRect(h * wide + 1, n * tall + 1, wide - 2, tall - 2);
      }
    });
    context.strokeStyle = colours.ink;
    context.lineWidth = 3;
    context.strokeRect(head * wide + 1.5, shown * tall + 1.5, wide - 3, tall - 3);
  }

  recolour() {
    this.draw(this.swaps);
    this.draw(this.order);
  }

  describe() {
    const { layers } = this.game.subject;
    this.text.textContent = this.done
      ? `Rows: layers ${layers[0].layer} to ${layers[layers.length - 1].layer}; columns: heads. Blue: stays, orange: follows, grey: both or neither. Click to choose.`
      : "Scoring all heads…";
  }
}
