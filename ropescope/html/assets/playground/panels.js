/* The panel of scores over all swaps, and the panel of RoPE planes. */

import { meters } from "./answer.js";
import { button, element, labelled, panel } from "./dom.js";
import { planeSpread } from "./scores.js";

const TAUS = [1e-4, 1e-3, 1e-2, 0.1, 1];
const SHARES = { position: "place", symbol: "content", binding: "which content stands where" };

export class ScorePanel {
  constructor(game) {
    this.game = game;
    this.meters = meters("all swaps");
    this.bar = element("div", { class: "shares", role: "img" });
    this.shares = element("p", { class: "small" });
    this.weight = element("p", { class: "small" });
    this.tau = element("select", { onchange: () => game.takeTau(Number(this.tau.value)) });
    const tau = labelled("Temperature τ", this.tau);
    this.node = panel("This head, over all swaps of two", this.meters.node, this.bar, this.shares, tau, this.weight);
  }

  showSubject() {
    const { tau } = this.game, taus = TAUS.includes(tau) ? TAUS : [tau, ...TAUS];
    this.tau.replaceChildren(...taus.map((one) => element("option", { value: String(one) }, String(one))));
    this.tau.value = String(tau);
  }

  draw() {
    const { scores, shares, spans, before, mode } = this.game, m = spans.length;
    this.meters.show(scores);
    this.bar.replaceChildren();
    if (shares) {
      for (const key of Object.keys(SHARES)) {
        const part = element("i", { class: key });
        part.style.width = `${100 * shares[key]}%`;
        this.bar.append(part);
      }
      const parts = Object.entries(SHARES).map(([key, name]) => `${(100 * shares[key]).toFixed(1)} % ${name}`);
      this.shares.textContent = `Variance of M: ${parts.join(", ")}.`;
    } else this.shares.textContent = "Fewer than two can move here.";
    this.bar.setAttribute("aria-label", this.shares.textContent);
    let movable = 0;
    for (const [start, stop] of spans) for (let p = start; p < stop; p++) movable += before[p];
    const what = mode === "blocks" ? "sentences" : "tokens";
    this.weight.textContent = `${m} ${what} can move, ${(m * (m - 1)) / 2} swaps; they get ${(100 * movable).toPrecision(3)} % of the weight, fixed tokens ${(100 * (1 - movable)).toPrecision(3)} %.`;
  }
}

export class PlanePanel {
  constructor(game) {
    this.game = game;
    const slider = (label, which) =>
      element("input", { type: "range", min: "1", step: "1", "aria-label": label, oninput: () => this.take(which) });
    this.low = slider("First plane used", "from");
    this.high = slider("Last plane used", "to");
    this.still = element("input", { type: "checkbox", onchange: () => this.take("still") });
    this.stillLabel = element("label", { class: "check" }, this.still, " dimensions without rotation");
    this.canvas = element("canvas", { class: "planes", role: "img", "aria-label": "How much each plane's logits vary" });
    this.text = element("p", { class: "small", "aria-live": "polite" });
    this.sliders = element("div", { class: "sliders" }, this.low, this.high);
    this.node = panel(
      "Frequencies",
      element("div", { class: "gate" }, this.canvas, this.sliders),
      this.text,
      this.stillLabel,
      button("All planes", "Use every plane again", () => game.takeGate(null)),
    );
  }

  /* The ends cannot cross: the end that is not being moved comes along. */
  take(which) {
    const { game } = this, planes = game.subject.frequencies(game.layer).length, still = this.still.checked;
    let from = Number(this.low.value) - 1, to = Number(this.high.value) - 1;
    if (from > to) {
      if (which === "from") to = from;
      else from = to;
    }
    game.takeGate(from === 0 && to >= planes - 1 && still ? null : { from, to, still });
  }

  showChoice() {
    const { subject, layer, gate } = this.game, frequencies = subject.frequencies(layer), planes = frequencies.length;
    for (const slider of [this.low, this.high]) {
      slider.max = String(Math.max(1, planes));
      slider.disabled = planes === 0;
    }
    this.low.value = String(gate ? gate.from + 1 : 1);
    this.high.value = String(gate ? gate.to + 1 : planes);
    this.still.checked = gate ? gate.still : true;
    this.stillLabel.hidden = !subject.factors(layer).still;
    const from = Number(this.low.value), to = Number(this.high.value);
    const turn = (f) => {
      const angle = Math.abs(frequencies[f - 1]);
      return angle > 0 ? `${((2 * Math.PI) / angle).toPrecision(3).replace(/e\+?(\d+)/, " × 10^$1")} tokens` : "no number of tokens";
    };
    this.text.textContent = planes
      ? `Planes ${from} to ${to} of ${planes}: one turn takes ${turn(from)} (fastest used) to ${turn(to)} (slowest). Bars: how much each plane's logits vary over tokens that can move.`
      : "This layer does not rotate: its logits do not depend on places.";
    const wide = Math.max(1, planes - 1);
    this.sliders.style.setProperty("--low", (from - 1) / wide);
    this.sliders.style.setProperty("--high", (planes - to) / wide);
  }

  draw() {
    const { subject, layer, head, spans, gate, colours } = this.game, { canvas } = this;
    canvas.width = Math.max(1, 2 * canvas.clientWidth);
    canvas.height = 96;
    const places = spans.flatMap(([start, stop]) => Array.from({ length: stop - start }, (_, i) => start + i));
    const spread = places.length ? planeSpread(subject, layer, head, places) : [];
    const most = Math.max(...spread, 1e-300), context = canvas.getContext("2d"), step = canvas.width / Math.max(1, spread.length);
    spread.forEach((value, f) => {
      const used = !gate || (f >= gate.from && f <= gate.to);
      context.fillStyle = colours[used ? "strong" : "line"];
      const tall = Math.max(2, Math.sqrt(value / most) * (canvas.height - 2));
      context.fillRect(f * step + 1, canvas.height - tall, Math.max(1, step - 2), tall);
    });
  }
}
