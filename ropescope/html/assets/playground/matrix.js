/* The picture of M: every token at every place. */

import { heat } from "./colours.js";
import { element, panel, short, shown } from "./dom.js";

export class Matrix {
  constructor(game) {
    this.game = game;
    this.canvas = element("canvas", { class: "matrix", role: "img" });
    this.canvas.addEventListener("pointermove", (event) => this.tell(event));
    this.text = element("p", { class: "small" });
    this.node = panel("M: every token at every place", this.canvas, this.text);
  }

  /* The logits, which do not depend on the order. */
  draw() {
    const { M, subject } = this.game, T = subject.size;
    this.cell = Math.max(1, Math.floor(560 / T));
    this.canvas.width = this.canvas.height = T * this.cell;
    let low = Infinity, high = -Infinity;
    for (const x of M) {
      if (x === -Infinity) continue;
      low = Math.min(low, x);
      high = Math.max(high, x);
    }
    this.picture = element("canvas", { width: T, height: T });
    const context = this.picture.getContext("2d"), image = context.createImageData(T, T);
    for (let i = 0; i < T * T; i++) {
      const [r, g, b] = M[i] === -Infinity ? [128, 128, 128] : heat(high > low ? (M[i] - low) / (high - low) : 0.5);
      image.data.set([r, g, b, 255], 4 * i);
    }
    context.putImageData(image, 0, 0);
    this.text.textContent = `Rows: tokens, columns: places; logits from ${low.toFixed(2)} (dark) to ${high.toFixed(2)} (light). Dots: which token stands where now.`;
    this.canvas.setAttribute("aria-label", this.text.textContent);
  }

  /* A dot for each token, where it stands now. */
  drawOrder() {
    const context = this.canvas.getContext("2d"), { cell } = this, radius = Math.max(1.5, cell * 0.32);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, 0, 0, this.canvas.width, this.canvas.height);
    context.lineWidth = Math.max(1, cell * 0.14);
    context.strokeStyle = "#000";
    this.game.order.forEach((content, place) => {
      context.beginPath();
      context.arc((place + 0.5) * cell, (content + 0.5) * cell, radius, 0, 2 * Math.PI);
      context.fillStyle = content === place ? "#fff" : "#D55E00";
      context.fill();
      context.stroke();
    });
  }

  tell(event) {
    const box = this.canvas.getBoundingClientRect(), { M, subject } = this.game, T = subject.size;
    const c = Math.floor(((event.clientY - box.top) / box.height) * T), p = Math.floor(((event.clientX - box.left) / box.width) * T);
    if (!(c >= 0 && p >= 0 && c < T && p < T)) return;
    this.text.textContent = `“${short(shown(subject.tokens[c]), 24)}” (token ${c}) at place ${p}: logit ${M[c * T + p].toFixed(3)}`;
  }
}
