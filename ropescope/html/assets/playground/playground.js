/* One playground: what is chosen, what follows from it, and the parts that show it. */

import { Answer } from "./answer.js";
import { Controls, TypedOrder } from "./controls.js";
import { element, short } from "./dom.js";
import { help } from "./help.js";
import { HeadMaps } from "./maps.js";
import { Matrix } from "./matrix.js";
import { Moving } from "./moving.js";
import { orderOf, slotsOf } from "./orders.js";
import { PlanePanel, ScorePanel } from "./panels.js";
import { attention, logTotalOf, orderScores, swapScores, unitLogits, varianceShares } from "./scores.js";
import { Stage } from "./stage.js";
import { Subject } from "./subject.js";

const darkness = window.matchMedia("(prefers-color-scheme: dark)");
let made = 0;

export class Playground {
  constructor(root, { data, arrays }) {
    this.root = root;
    this.run = root.dataset.run || "";
    this.id = `playground:${++made}`; // no id that is made from a name has a colon
    this.subjects = data.subjects.map((one) => new Subject(one, arrays));
    this.telling = false; // this playground is announcing a head itself
    this.cost = 0; // milliseconds of the last render
    this.build();
    this.readColours();
    this.takeSubject(0);
    document.addEventListener("ropescope:head", (event) => this.heard(event.detail));
    new MutationObserver(() => this.recolour()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    darkness.addEventListener("change", () => this.recolour());
    new ResizeObserver(() => this.resized()).observe(this.stage.node);
  }

  build() {
    this.controls = new Controls(this);
    this.answer = new Answer();
    this.stage = new Stage(this);
    this.moving = new Moving(this);
    this.scorePanel = new ScorePanel(this);
    this.planes = new PlanePanel(this);
    this.maps = new HeadMaps(this);
    this.matrix = new Matrix(this);
    this.typed = new TypedOrder(this);
    this.status = element("p", { class: "status", "aria-live": "polite" });
    const panels = [this.scorePanel, this.planes, this.maps, this.matrix].map((part) => part.node);
    // The ghost of a drag stands outside of `inner`: it is placed in the window, not in a container.
    const inner = element(
      "div",
      { class: "inner" },
      this.controls.node,
      this.controls.about,
      this.answer.node,
      this.stage.legend,
      this.stage.node,
      this.status,
      element("div", { class: "panels" }, ...panels),
      this.typed.node,
      help(),
    );
    this.root.append(inner);
  }

  say(text) {
    this.status.textContent = text;
  }

  // ---- What is chosen.

  takeSubject(index) {
    this.moving.finish(false);
    const subject = (this.subject = this.subjects[index]);
    const singles = subject.blocks.every(([start, stop]) => stop - start === 1);
    const modes = subject.blocks.length < 2 ? ["any"] : singles ? ["tokens", "any"] : ["blocks", "tokens", "any"];
    const examples = Object.entries(subject.examples).map(([kind, [layer, head]]) => [kind, this.layerNumber(layer), head]);
    [this.mode, this.tau, this.gate, this.layer] = [modes[0], subject.tau, null, -1];
    this.controls.showSubject(index, modes, examples);
    this.scorePanel.showSubject();
    this.stage.showSubject();
    this.show(...(examples.length ? examples[0].slice(1) : [0, 0]));
  }

  takeMode(mode) {
    this.moving.finish(false);
    this.mode = mode;
    this.chosen = null;
    this.respan();
    this.row = this.spans.map((_, k) => k);
    this.remember();
    this.fresh();
  }

  takeTau(tau) {
    this.tau = tau;
    this.fresh();
  }

  /* Use the planes of a gate alone; null for all of them. */
  takeGate(gate) {
    this.gate = gate;
    this.fresh();
  }

  /* The user chose a head here: announce it to the rest of the page. */
  pick(n, h) {
    this.show(n, h);
    const detail = { run: this.run, subject: this.subject.name, layer: this.subject.layers[this.layer].layer, head: this.head };
    this.telling = true;
    document.dispatchEvent(new CustomEvent("ropescope:head", { detail }));
    this.telling = false;
  }

  heard(detail) {
    if (this.telling || !detail || detail.run !== this.run) return;
    const subject = this.subjects.findIndex((one) => one.name === detail.subject);
    if (subject >= 0 && this.subjects[subject] !== this.subject) this.takeSubject(subject);
    const n = this.layerNumber(Number(detail.layer)), h = Number(detail.head);
    if (n >= 0 && Number.isInteger(h) && h >= 0 && h < this.subject.layers[n].heads) this.show(n, h);
    else this.say(`Layer ${short(String(detail.layer))}, head ${short(String(detail.head))} is not in this playground.`);
  }

  /* The index of a layer of the model among the layers of the subject, or -1. */
  layerNumber(layer) {
    return this.subject.layers.findIndex((one) => one.layer === layer);
  }

  show(n, h) {
    const { subject, layer: old } = this;
    if (n !== old) {
      this.layer = n;
      this.controls.showLayer();
      if (old < 0) this.restart();
      else {
        if (subject.frequencies(old).length !== subject.frequencies(n).length) this.gate = null;
        if (subject.first(old) !== subject.first(n)) this.rewindow();
      }
    }
    this.head = Math.min(h, subject.layers[n].heads - 1);
    this.fresh();
  }

  respan() {
    this.spans = this.subject.spans(this.layer, this.mode);
  }

  // ---- Orders.

  restart() {
    this.respan();
    this.row = this.spans.map((_, k) => k);
    this.history = [{ mode: this.mode, row: this.row }];
    this.now = 0;
    this.chosen = null;
  }

  /* With another window other tokens may move: older orders cannot be shown any more, the current one only if its units remain. */
  rewindow() {
    this.moving.finish(false);
    const { spans, row } = this;
    this.restart();
    if (JSON.stringify(spans) === JSON.stringify(this.spans)) this.history = [{ mode: this.mode, row: (this.row = row) }];
  }

  remember() {
    this.history.splice(this.now + 1);
    this.history.push({ mode: this.mode, row: this.row });
    this.now = this.history.length - 1;
  }

  /* A new order, as a step that can be undone. */
  take(row) {
    this.chosen = null;
    if (row.some((unit, k) => unit !== this.row[k])) {
      this.row = row;
      this.remember();
    }
    this.render();
  }

  travel(step) {
    this.moving.finish(false);
    const at = this.history[this.now + step];
    if (!at) return;
    this.now += step;
    const other = at.mode !== this.mode;
    this.mode = at.mode;
    this.respan();
    this.row = at.row;
    this.chosen = null;
    if (other) this.fresh();
    else this.render();
  }

  // ---- Computing and drawing.

  /* Everything that depends on the head, on what moves and on the planes; then what depends on the order. */
  fresh() {
    const { subject, layer: n, head: h, spans } = this;
    const logit = (this.logit = subject.logit(n, h, this.gate));
    this.before = attention(logit, subject.tokens.map((_, p) => p), subject.sink(n, h));
    this.logTotal = logTotalOf(subject, n, h, logit);
    const units = unitLogits(logit, spans);
    this.scores = swapScores(units, spans.length, this.logTotal, this.tau);
    this.shares = varianceShares(units, spans.length);
    const T = subject.size, M = (this.M = new Float64Array(T * T));
    for (let c = 0; c < T; c++) for (let p = 0; p < T; p++) M[c * T + p] = logit(c, p);
    this.controls.showChoice();
    this.planes.showChoice();
    this.planes.draw();
    this.scorePanel.draw();
    this.matrix.draw();
    this.maps.start();
    this.stage.drawFolds();
    this.render();
  }

  /* What depends on the order: this is all that a drag needs. */
  render() {
    const started = performance.now();
    const { subject, spans, row } = this;
    this.order = orderOf(subject.size, spans, row);
    this.slots = slotsOf(subject.size, spans, row);
    this.after = attention(this.logit, this.order, subject.sink(this.layer, this.head));
    this.orderScore = orderScores(this.logit, spans, row, this.logTotal);
    this.stage.draw();
    this.answer.draw(this);
    this.matrix.drawOrder();
    this.maps.startOrder();
    this.controls.showHistory();
    this.typed.draw();
    this.cost = performance.now() - started;
  }

  resized() {
    this.stage.measure();
    this.planes.draw();
  }

  /* Colours for canvases. Read seldom, because reading makes the browser lay out the page. */
  readColours() {
    const { theme } = document.documentElement.dataset;
    this.root.classList.toggle("dark", theme ? theme === "dark" : darkness.matches);
    const style = getComputedStyle(this.root);
    this.colours = Object.fromEntries(["ink", "strong", "line"].map((name) => [name, style.getPropertyValue(`--pg-${name}`)]));
  }

  recolour() {
    this.readColours();
    this.planes.draw();
    this.maps.recolour();
  }

  // ---- For other scripts and for tests.

  state() {
    const { subject, mode, tau, row, order, before, after, scores, shares, gate, cost, orderScore, maps } = this;
    return {
      subject: subject.name, layer: subject.layers[this.layer].layer, head: this.head, mode, tau, row: [...row], order: [...order],
      before, attention: after, scores, shares, gate, cost, thisOrder: orderScore, mapDone: maps.done, map: maps.swaps.values,
      thisOrderMap: maps.order.values, M: Array.from(this.M),
    };
  }
}
