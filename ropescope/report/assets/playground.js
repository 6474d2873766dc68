/* The playground: move tokens, and see where a head's attention goes, computed here from M.
 *
 * Part one is arithmetic and knows nothing of pages; it follows ropescope's `logits` and `measures` formula by formula. Part two
 * shows one element with class "playground". Nothing is fetched, nothing is evaluated, text only ever becomes text nodes.
 */
"use strict";
(() => {
  if (window.ropescopePlayground) return;

  // ---------------------------------------------------------------- arithmetic

  function decoded(packed) {
    const text = atob(packed.base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return packed.type === "float32" ? Float64Array.from(new Float32Array(bytes.buffer)) : new Float64Array(bytes.buffer);
  }

  /* A model on a prompt. Layers are unpacked when first asked for. */
  class Subject {
    constructor(data) {
      Object.assign(this, { name: data.name, about: data.about, tokens: data.tokens, blocks: data.blocks, tau: data.tau });
      this.check = data.check;
      this.examples = data.examples;
      this.layersOfModel = data.layers_of_model;
      this.layers = data.layers;
      this.tables = data.tables;
      this.size = data.tokens.length;
      this.query = this.size - 1;
      this.turns = [];
      this.unpacked = [];
      this.blockOf = new Map(); // token -> its block
      data.blocks.forEach(([start, stop], b) => {
        for (let c = start; c < stop; c++) this.blockOf.set(c, b);
      });
    }

    frequencies(n) {
      return this.tables[this.layers[n].table].frequencies;
    }

    /* The first place that the last query sees. */
    first(n) {
      const window = this.layers[n].window;
      return window === null ? 0 : Math.max(0, this.size - window);
    }

    rotation(n) {
      const table = this.layers[n].table;
      if (!this.turns[table]) this.turns[table] = decoded(this.tables[table].turns);
      return this.turns[table];
    }

    /* Both factors of M = content . place of a layer: place (T, r), content of each head (T, r). */
    factors(n) {
      if (this.unpacked[n]) return this.unpacked[n];
      const layer = this.layers[n];
      const T = this.size, F = this.frequencies(n).length, d = layer.head_dim;
      const turns = this.rotation(n);
      const queries = decoded(layer.queries), keys = decoded(layer.keys);
      if (layer.turned) {
        for (let h = 0; h < layer.heads; h++) turnBack(queries, h * d, turns, (T - 1) * 2 * F, F);
        for (let row = 0; row < layer.key_heads * T; row++) turnBack(keys, row * d, turns, (row % T) * 2 * F, F);
      }
      const still = d > 2 * F, r = 2 * F + (still ? 1 : 0);
      const place = new Float64Array(T * r);
      for (let p = 0; p < T; p++) {
        for (let f = 0; f < F; f++) {
          const a = turns[2 * (p * F + f)], b = turns[2 * (p * F + f) + 1];
          const c = turns[2 * ((T - 1) * F + f)], e = turns[2 * ((T - 1) * F + f) + 1];
          place[p * r + 2 * f] = layer.scale * (a * c + b * e);
          place[p * r + 2 * f + 1] = layer.scale * (a * e - b * c);
        }
        if (still) place[p * r + 2 * F] = layer.scale;
      }
      const contents = [];
      for (let h = 0; h < layer.heads; h++) {
        const group = Math.floor(h / (layer.heads / layer.key_heads));
        const content = new Float64Array(T * r), q = h * d;
        for (let c = 0; c < T; c++) {
          const k = (group * T + c) * d;
          for (let f = 0; f < F; f++) {
            const x = keys[k + 2 * f], y = keys[k + 2 * f + 1], u = queries[q + 2 * f], v = queries[q + 2 * f + 1];
            content[c * r + 2 * f] = x * u + y * v;
            content[c * r + 2 * f + 1] = y * u - x * v;
          }
          let dot = 0;
          for (let i = 2 * F; i < d; i++) dot += keys[k + i] * queries[q + i];
          if (still) content[c * r + 2 * F] = dot;
        }
        contents.push(content);
      }
      return (this.unpacked[n] = { place, contents, r, planes: F, still });
    }

    /* A function (content, place) -> logit of one head, made from some of its planes. */
    logit(n, h, gate) {
      const { place, contents, r, planes, still } = this.factors(n);
      const content = contents[h], layer = this.layers[n], cap = layer.soft_cap, query = this.query;
      const slope = layer.alibi === null ? 0 : layer.alibi[h], first = this.first(n);
      const low = gate ? 2 * Math.min(gate.from, planes) : 0, high = gate ? 2 * Math.min(gate.to + 1, planes) : 2 * planes;
      const rest = still && (!gate || gate.still);
      return (c, p) => {
        if (p < first) return -Infinity;
        let sum = 0;
        for (let i = low, x = c * r + low, y = p * r + low; i < high; i++) sum += content[x++] * place[y++];
        if (rest) sum += content[c * r + 2 * planes] * place[p * r + 2 * planes];
        if (cap !== null) sum = cap * Math.tanh(sum / cap);
        return sum - slope * (query - p);
      };
    }

    sink(n, h) {
      const sinks = this.layers[n].sinks;
      return sinks === null ? -Infinity : sinks[h];
    }

    /* Half-open ranges of places that may move, in order. */
    spans(n, mode) {
      const first = this.first(n), singles = [];
      if (mode === "any") {
        for (let p = first; p < this.query; p++) singles.push([p, p + 1]);
        return singles;
      }
      const blocks = this.blocks.filter(([start]) => start >= first);
      if (mode === "blocks") return blocks;
      for (const [start, stop] of blocks) for (let p = start; p < stop; p++) singles.push([p, p + 1]);
      return singles;
    }
  }

  /* Vectors of a plane are stored as the model rotated them: divide by the rotation. */
  function turnBack(vectors, at, turns, row, planes) {
    for (let f = 0; f < planes; f++) {
      const a = turns[row + 2 * f], b = turns[row + 2 * f + 1], norm = a * a + b * b;
      const x = vectors[at + 2 * f], y = vectors[at + 2 * f + 1];
      vectors[at + 2 * f] = (x * a + y * b) / norm;
      vectors[at + 2 * f + 1] = (y * a - x * b) / norm;
    }
  }

  function logSum(values) {
    let most = -Infinity;
    for (const value of values) if (value > most) most = value;
    if (most === -Infinity) return most;
    let sum = 0;
    for (const value of values) sum += Math.exp(value - most);
    return most + Math.log(sum);
  }

  /* Which content stands at each place when slot k holds unit row[k]; what is in no unit stays in its order between them. */
  function orderOf(size, spans, row) {
    const order = [];
    spans.forEach(([start], k) => {
      for (let p = k ? spans[k - 1][1] : 0; p < start; p++) order.push(p);
      const [from, to] = spans[row[k]];
      for (let p = from; p < to; p++) order.push(p);
    });
    for (let p = spans.length ? spans[spans.length - 1][1] : 0; p < size; p++) order.push(p);
    return order;
  }

  /* For each place the slot that it belongs to when slot k holds unit row[k], or -1. */
  function slotsOf(size, spans, row) {
    const slots = new Array(size).fill(-1);
    let at = 0;
    spans.forEach(([start], k) => {
      at += start - (k ? spans[k - 1][1] : 0);
      const [from, to] = spans[row[k]];
      for (let p = from; p < to; p++) slots[at++] = k;
    });
    return slots;
  }

  function attention(logit, order, sink) {
    const logits = order.map((content, place) => logit(content, place));
    const total = logSum([...logits, sink]);
    return logits.map((x) => Math.exp(x - total));
  }

  /* Log of the mean weight, up to the normaliser, of the unit in each slot. */
  function placed(logit, spans, row) {
    let at = 0;
    return spans.map(([start], k) => {
      at += start - (k ? spans[k - 1][1] : 0);
      const [from, to] = spans[row[k]], values = [];
      for (let c = from; c < to; c++) values.push(logit(c, at++));
      return logSum(values) - Math.log(to - from);
    });
  }

  /* Scores of one order: cosines over the slots whose unit changes, and how much weight a symbolic head would move. */
  function orderScores(logit, spans, row, logTotal) {
    const still = row.map((_, k) => k);
    const moved = still.filter((k) => row[k] !== k);
    if (!moved.length) return null;
    const before = placed(logit, spans, still), after = placed(logit, spans, row);
    const x = moved.map((k) => after[k]), stays = moved.map((k) => before[k]), follows = moved.map((k) => before[row[k]]);
    let weight = 0;
    for (const k of moved) weight += Math.abs(Math.exp(before[row[k]] - logTotal) - Math.exp(before[k] - logTotal)) / 2;
    return { positional: cosine(x, stays), symbolic: cosine(x, follows), moved: weight };
  }

  /* Cosine of exp(x) and exp(y). */
  function cosine(x, y) {
    const a = Math.max(...x), b = Math.max(...y);
    let xy = 0, xx = 0, yy = 0;
    for (let i = 0; i < x.length; i++) {
      const u = Math.exp(x[i] - a), v = Math.exp(y[i] - b);
      xy += u * v;
      xx += u * u;
      yy += v * v;
    }
    return Math.min(1, xy / Math.sqrt(xx * yy));
  }

  /* Row c, column s: log of the mean weight, up to the normaliser, of unit c where unit s stood. When two units of unequal
   * length change places, the later one starts where the earlier started, and the earlier stops where the later stopped. */
  function unitLogits(logit, spans) {
    const m = spans.length, equal = spans.every(([a, b]) => b - a === spans[0][1] - spans[0][0]);
    const result = new Float64Array(m * m);
    for (let c = 0; c < m; c++) {
      const [from, to] = spans[c], length = to - from;
      for (let s = 0; s < m; s++) {
        const at = equal || c > s ? spans[s][0] : spans[s][1] - length;
        if (length === 1) result[c * m + s] = logit(from, at);
        else {
          const values = [];
          for (let t = 0; t < length; t++) values.push(logit(from + t, at + t));
          result[c * m + s] = logSum(values) - Math.log(length);
        }
      }
    }
    return result;
  }

  /* Log of the sum of all weights before they are divided by it. */
  function logTotalOf(subject, n, h, logit) {
    const values = [subject.sink(n, h)];
    for (let p = subject.first(n); p < subject.size; p++) values.push(logit(p, p));
    return logSum(values);
  }

  /* Positional and symbolic score over all swaps of two units. */
  function swapScores(units, m, logTotal, tau) {
    if (m < 2) return null;
    const before = new Float64Array(m), weight = new Float64Array(m);
    let most = -Infinity, least = Infinity;
    for (let i = 0; i < m; i++) {
      before[i] = units[i * m + i];
      weight[i] = Math.exp(before[i] - logTotal);
      most = Math.max(most, weight[i]);
      least = Math.min(least, weight[i]);
    }
    let sum = 0, positional = 0, symbolic = 0;
    for (let i = 0; i < m; i++)
      for (let j = i + 1; j < m; j++) {
        const alpha = Math.exp((Math.abs(weight[i] - weight[j]) - (most - least)) / tau);
        if (alpha === 0) continue;
        const u = before[i] - before[j], w = units[j * m + i] - units[i * m + j];
        const a = Math.exp(Math.min(u, 0)), b = Math.exp(Math.min(-u, 0));
        const c = Math.exp(Math.min(w, 0)), d = Math.exp(Math.min(-w, 0));
        const norm = 1 / Math.sqrt((a * a + b * b) * (c * c + d * d));
        sum += alpha;
        positional += alpha * (a * c + b * d) * norm;
        symbolic += alpha * (a * d + b * c) * norm;
      }
    return { positional: Math.min(1, positional / sum), symbolic: Math.min(1, symbolic / sum) };
  }

  /* What the logits of units depend on: content, place, or which content stands where. */
  function varianceShares(units, m) {
    if (m < 2) return null;
    const rows = new Float64Array(m), columns = new Float64Array(m);
    let mean = 0, largest = 0;
    for (const x of units) {
      mean += x / (m * m);
      largest = Math.max(largest, Math.abs(x));
    }
    for (let c = 0; c < m; c++)
      for (let p = 0; p < m; p++) {
        rows[c] += (units[c * m + p] - mean) / m;
        columns[p] += (units[c * m + p] - mean) / m;
      }
    let symbol = 0, position = 0, binding = 0;
    for (let c = 0; c < m; c++) {
      symbol += rows[c] ** 2 / m;
      position += columns[c] ** 2 / m;
      for (let p = 0; p < m; p++) binding += (units[c * m + p] - mean - rows[c] - columns[p]) ** 2 / (m * m);
    }
    const total = symbol + position + binding;
    if (!(total > (largest * 8 * Number.EPSILON) ** 2)) return { symbol: 0.5, position: 0.5, binding: 0 };
    return { symbol: symbol / total, position: position / total, binding: binding / total };
  }

  /* Variance of each plane's logits over the tokens that may move, as they stand. */
  function planeSpread(subject, n, h, places) {
    const { place, contents, r, planes } = subject.factors(n), content = contents[h];
    return Array.from({ length: planes }, (_, f) => {
      const values = places.map((p) => {
        const i = p * r + 2 * f;
        return content[i] * place[i] + content[i + 1] * place[i + 1];
      });
      const mean = values.reduce((a, b) => a + b, 0) / values.length;
      return values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length;
    });
  }

  // ---------------------------------------------------------------- page

  const MODES = { blocks: "sentences", tokens: "their tokens", any: "any token" };
  const TAUS = [1e-4, 1e-3, 1e-2, 0.1, 1];
  const HOLD = 180; // milliseconds that a finger rests before it drags instead of scrolling
  const quiet = window.matchMedia("(prefers-reduced-motion: reduce)");
  let made = 0;

  function element(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }

  /* What cannot be seen in a token gets a sign. */
  function shown(text) {
    if (text === "") return "∅";
    return text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length));
  }

  function short(text, most = 60) {
    const points = Array.from(text.slice(0, 4 * most));
    return points.length > most ? `${points.slice(0, most).join("")}…` : points.join("");
  }

  /* Write to the page only what is not there already. */
  function put(place, key, value, write) {
    if (place.put[key] === value) return;
    place.put[key] = value;
    write(value);
  }

  const percent = (x) => (x >= 0.0995 ? `${Math.round(x * 100)}` : x >= 0.00095 ? (x * 100).toFixed(1) : "");
  const atMost = (x) => (x === 0 ? "nothing" : `at most ${x.toExponential(0)}`);
  const number = (x) => (x === null || Number.isNaN(x) ? "–" : x.toFixed(3));

  /* Blue where attention stays, orange where it follows, grey where neither or both. */
  function leaning(positional, symbolic) {
    const lean = positional - symbolic, grey = [150, 150, 150], full = lean > 0 ? [0, 114, 178] : [213, 94, 0];
    const share = Math.min(1, Math.abs(lean));
    return `rgb(${grey.map((g, i) => Math.round(g + (full[i] - g) * share)).join(",")})`;
  }

  const STOPS = [[0, 32, 77], [61, 77, 107], [124, 123, 120], [187, 174, 108], [255, 234, 70]]; // colour-blind safe, dark to light
  function heat(x) {
    const at = Math.max(0, Math.min(1, x)) * (STOPS.length - 1), i = Math.min(STOPS.length - 2, Math.floor(at));
    return STOPS[i].map((low, k) => Math.round(low + (STOPS[i + 1][k] - low) * (at - i)));
  }

  class Playground {
    constructor(root) {
      this.root = root;
      this.run = root.dataset.run || "";
      this.id = `playground-${++made}`;
      const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
      this.subjects = data.subjects.map((one) => new Subject(one));
      this.cost = 0;
      this.build();
      this.readColours();
      this.takeSubject(0);
      document.addEventListener("ropescope:head", (event) => this.heard(event.detail));
      new MutationObserver(() => this.recolour()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
      window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
      new ResizeObserver(() => this.measure()).observe(this.stage);
    }

    // ------------------------------------------------------------ building

    build() {
      const button = (label, title, action) => element("button", { type: "button", title, onclick: action }, label);
      const chosen = (label, select) => {
        select.setAttribute("aria-label", label);
        return element("label", { class: "field" }, element("span", {}, label), select);
      };
      this.subjectSelect = element("select", { onchange: () => this.takeSubject(this.subjectSelect.selectedIndex) });
      this.subjects.forEach((one) => this.subjectSelect.append(element("option", {}, short(one.name))));
      this.layerSelect = element("select", { onchange: () => this.pick(this.layerSelect.selectedIndex, this.head) });
      this.headSelect = element("select", { onchange: () => this.pick(this.layer, this.headSelect.selectedIndex) });
      this.modes = element("div", { class: "modes", role: "radiogroup", "aria-label": "What moves" });
      this.undoButton = button("Undo", "Take the last move back (Ctrl+Z)", () => this.travel(-1));
      this.redoButton = button("Redo", "Make it again (Ctrl+Y)", () => this.travel(1));
      this.resetButton = button("Reset", "Back to the real order", () => this.take(this.row.map((_, k) => k)));
      const subjects = chosen("Prompt", this.subjectSelect);
      subjects.hidden = this.subjects.length < 2;
      this.tauSelect = element("select", { onchange: () => this.takeTau(Number(this.tauSelect.value)) });
      this.about = element("p", { class: "about" });
      this.verdict = element("p", { class: "verdict" });
      this.orderMeters = this.meters("this order");
      this.stage = element("div", { class: "stage", role: "group", "aria-label": "Tokens in their places" });
      this.scale = element("span", {});
      this.status = element("p", { class: "status", "aria-live": "polite" });
      this.folding = true;
      this.foldBox = element("input", { type: "checkbox", checked: true, onchange: () => this.takeFold(this.foldBox.checked) });
      this.foldLabel = element("label", { class: "check" }, this.foldBox, " fold what stays");
      this.jumps = element("div", { class: "buttons" });
      this.swapMeters = this.meters("all swaps");
      this.shareBar = element("div", { class: "shares", role: "img" });
      this.shareText = element("p", { class: "small" });
      this.heldText = element("p", { class: "small" });
      this.swapMap = this.headMap("over all swaps");
      this.orderMap = this.headMap("in this very order");
      this.mapText = element("p", { class: "small", "aria-live": "off" });
      this.matrix = element("canvas", { class: "matrix", role: "img" });
      this.matrix.addEventListener("pointermove", (event) => this.overMatrix(event));
      this.matrixText = element("p", { class: "small" });
      this.lowGate = this.gateSlider("First plane that is kept", () => this.takeGate("from"));
      this.highGate = this.gateSlider("Last plane that is kept", () => this.takeGate("to"));
      this.stillGate = element("input", { type: "checkbox", onchange: () => this.takeGate("still") });
      this.stillLabel = element("label", { class: "check" }, this.stillGate, " what never turns");
      this.planes = element("canvas", { class: "planes", role: "img", "aria-label": "How much each plane says" });
      this.gateText = element("p", { class: "small", "aria-live": "polite" });
      this.orderInput = element("input", { type: "text", spellcheck: "false", autocomplete: "off", id: `${this.id}-order` });
      this.orderError = element("p", { class: "error", role: "alert" });
      const order = element("form", { class: "order" }, element("label", { for: `${this.id}-order` }, "Any order"), this.orderInput);
      order.append(element("button", { type: "submit" }, "Set"));
      order.addEventListener("submit", (event) => this.typed(event));
      const panel = (title, ...inner) => element("section", { class: "panel" }, element("h4", {}, title), ...inner);

      // The ghost of a drag stands outside of `inner`: it moves with the window, not with a container.
      const inner = element("div", { class: "inner" });
      this.root.append(inner);
      inner.append(
        element(
          "div",
          { class: "controls" },
          subjects,
          chosen("Layer", this.layerSelect),
          chosen("Head", this.headSelect),
          element("div", { class: "field" }, element("span", {}, "Show a head that is"), this.jumps),
          element("div", { class: "field" }, element("span", {}, "Move"), this.modes),
          element(
            "div",
            { class: "buttons" },
            button("Shuffle", "A random order", () => this.shuffle()),
            button("Reverse", "Last first", () => this.take([...this.row].reverse())),
            this.undoButton,
            this.redoButton,
            this.resetButton,
          ),
        ),
        this.about,
        element("div", { class: "answer" }, this.verdict, this.orderMeters.node),
        element(
          "p",
          { class: "legend" },
          element("span", {}, element("i", { class: "key now" }), "attention now, in %"),
          element("span", {}, element("i", { class: "key stays" }), "if it stayed in its place"),
          element("span", {}, element("i", { class: "key follows" }), "if it followed its token"),
          this.scale,
          this.foldLabel,
        ),
        this.stage,
        this.status,
        element(
          "div",
          { class: "panels" },
          panel(
            "This head, over all swaps of two",
            this.swapMeters.node,
            this.shareBar,
            this.shareText,
            chosen("Temperature τ", this.tauSelect),
            this.heldText,
          ),
          panel(
            "Frequencies",
            element("div", { class: "gate" }, this.planes, element("div", { class: "sliders" }, this.lowGate, this.highGate)),
            this.gateText,
            this.stillLabel,
            button("All planes", "Use every plane again", () => this.openGate()),
          ),
          panel("All heads", element("div", { class: "maps" }, this.swapMap.node, this.orderMap.node), this.mapText),
          panel("M: every token at every place", this.matrix, this.matrixText),
        ),
        element("div", { class: "typed" }, order, this.orderError),
        this.help(),
      );
      this.root.addEventListener("keydown", (event) => this.shortcut(event));
      document.addEventListener("keydown", (event) => event.key === "Escape" && this.escape());
      this.stage.addEventListener("pointerdown", (event) => this.press(event));
      this.stage.addEventListener("pointermove", (event) => this.follow(event));
      this.stage.addEventListener("pointerup", (event) => this.release(event));
      this.stage.addEventListener("pointercancel", () => this.letGo(false));
      this.stage.addEventListener("lostpointercapture", () => this.letGo(true));
      // A finger that drags must not scroll the page; one that does not drag may.
      this.stage.addEventListener("touchmove", (event) => this.drag && this.drag.begun && event.preventDefault(), { passive: false });
      this.stage.addEventListener("contextmenu", (event) => this.drag && event.preventDefault());
      this.stage.addEventListener("click", (event) => this.click(event));
      this.stage.addEventListener("keydown", (event) => this.key(event));
      for (const name of ["pointerover", "focusin"]) this.stage.addEventListener(name, (event) => this.tell(this.placeOf(event.target)));
    }

    meters(what) {
      const one = (kind, label) => {
        const bar = element("i", {}), value = element("output", {});
        const node = element("div", { class: `meter ${kind}`, title: `${kind} score, ${what}` });
        node.append(element("span", {}, label), element("b", {}, bar), value);
        return { node, show: (x) => ((bar.style.width = `${x === null ? 0 : 100 * x}%`), (value.textContent = number(x))) };
      };
      const stays = one("positional", "stays · positional"), follows = one("symbolic", "follows · symbolic");
      return {
        node: element("div", { class: "meters" }, stays.node, follows.node),
        show(scores) {
          stays.show(scores ? scores.positional : null);
          follows.show(scores ? scores.symbolic : null);
        },
      };
    }

    headMap(caption) {
      const canvas = element("canvas", { class: "map", role: "img", "aria-label": `Map of heads, ${caption}` });
      const map = { canvas, node: element("figure", {}, canvas, element("figcaption", {}, caption)), values: [] };
      const at = (event) => {
        const box = canvas.getBoundingClientRect(), { layers } = this.subject;
        const n = Math.floor(((event.clientY - box.top) / box.height) * layers.length);
        const h = Math.floor(((event.clientX - box.left) / box.width) * this.mostHeads());
        return layers[n] && h >= 0 && h < layers[n].heads ? [n, h] : null;
      };
      canvas.addEventListener("click", (event) => at(event) && this.pick(...at(event)));
      canvas.addEventListener("pointermove", (event) => {
        const [n, h] = at(event) || [-1, -1], scores = n >= 0 && map.values[n] ? map.values[n][h] : null;
        if (scores) this.mapText.textContent = `L${this.subject.layers[n].layer} H${h}, ${caption}: positional ${number(scores.positional)}, symbolic ${number(scores.symbolic)}`;
      });
      canvas.addEventListener("pointerleave", () => this.tellMap());
      return map;
    }

    gateSlider(label, action) {
      return element("input", { type: "range", min: "1", step: "1", "aria-label": label, oninput: action });
    }

    help() {
      const item = (text) => element("li", {}, text);
      return element(
        "details",
        {},
        element("summary", {}, "How to read and use this"),
        element(
          "ul",
          {},
          item("Every bar is the weight that the last token (the query, locked at the end) gives to the token standing at that place, in one head of one layer."),
          item("Drag a token with the mouse, or hold a finger on it and drag; or focus it and use the arrow keys, Home and End; or click two to swap them. Escape lets go. Ctrl+Z undoes."),
          item("The blue line is where a bar would end if attention stayed in its place (a positional head), the orange one if it followed its token (a symbolic head). Bars are drawn on one scale, which the largest bar of a token that can move fills; larger bars of others are cut and striped."),
          item("What moves are the contents that the layer gets as input: their keys are turned by RoPE to their new places, and logits, softmax and scores are computed anew from M. Earlier layers are not run again."),
          item("Grey tokens stay: the query asks, and tokens in no sentence (begin of text, template, question) only take their share of the weight. Much of it often lies on the first token, which many heads use to rest on. Choose “any token” to move those too."),
          item("The two scores weigh every swap by how much weight it would move, at temperature τ; the shares tell what M depends on, without any swap. Frequencies: with fewer planes M is made of these alone, as if the others were cut out of this head."),
        ),
      );
    }

    // ------------------------------------------------------------ what is chosen

    mostHeads() {
      return Math.max(...this.subject.layers.map((layer) => layer.heads));
    }

    takeSubject(index) {
      const subject = (this.subject = this.subjects[index]);
      this.subjectSelect.selectedIndex = index;
      this.layerSelect.replaceChildren(...subject.layers.map((layer) => element("option", {}, String(layer.layer))));
      const singles = subject.blocks.every(([start, stop]) => stop - start === 1);
      this.known = subject.blocks.length < 2 ? ["any"] : singles ? ["tokens", "any"] : ["blocks", "tokens", "any"];
      this.modes.replaceChildren(
        ...this.known.map((mode) => {
          const radio = element("input", { type: "radio", name: `${this.id}-mode`, value: mode, onchange: () => this.takeMode(mode) });
          return element("label", {}, radio, element("span", {}, MODES[mode]));
        }),
      );
      const taus = TAUS.includes(subject.tau) ? TAUS : [subject.tau, ...TAUS];
      this.tauSelect.replaceChildren(...taus.map((tau) => element("option", { value: String(tau) }, String(tau))));
      this.tau = subject.tau;
      this.tauSelect.value = String(this.tau);
      const { model, prompts } = subject.about, kept = subject.layers[0].keys.type;
      const left = subject.layersOfModel.length - subject.layers.length;
      this.about.textContent =
        [model, prompts].filter(Boolean).map((part) => short(String(part), 200)).join("; ") +
        `. Kept in ${kept}: attention of all heads, tried in ${subject.check.orders} orders, differs from that of full precision by ` +
        `${atMost(subject.check.attention)}, their scores by ${atMost(subject.check.scores)}.` +
        (left ? ` ${left} layers are left out for size.` : "");
      this.buildPlaces();
      this.mode = this.known[0];
      this.layer = -1;
      this.gate = null;
      this.restart();
      const examples = Object.entries(subject.examples).map(([kind, [layer, head]]) => [kind, subject.layers.findIndex((one) => one.layer === layer), head]);
      this.jumps.replaceChildren(...examples.map(([kind, n, h]) => element("button", { type: "button", class: kind, onclick: () => this.pick(n, h) }, kind)));
      this.show(...(examples.length ? examples[0].slice(1) : [0, 0]));
    }

    buildPlaces() {
      this.places = this.subject.tokens.map((_, place) => {
        const text = element("span", { class: "text", dir: "auto" });
        const token = element("button", { type: "button", class: "token" }, text);
        const now = element("i", { class: "now" }), stays = element("i", { class: "stays" }), follows = element("i", { class: "follows" });
        const value = element("span", { class: "value" });
        const bar = element("div", { class: "bar" }, now, stays, follows, value);
        const node = element("div", { class: "place", "data-place": place }, bar, token, element("span", { class: "index" }, String(place)));
        return { node, token, text, now, stays, follows, value, put: {} };
      });
      this.folds = [0, 1].map(() => {
        const button = element("button", { type: "button", class: "fold", onclick: () => this.takeFold(false) });
        return { button, node: element("div", { class: "place folded" }, button), value: element("span", { class: "value" }) };
      });
      this.stage.replaceChildren(...this.places.map((place) => place.node));
      this.drawn = null;
    }

    takeFold(on) {
      this.folding = on;
      this.foldBox.checked = on;
      this.drawFolds();
      this.render();
    }

    /* What stands before all that can move, but for the first token, and after it, but for the query, may be folded away. */
    drawFolds() {
      const { spans, places } = this, last = this.subject.query;
      const ranges = spans.length ? [[1, spans[0][0]], [spans[spans.length - 1][1], last]] : [];
      this.foldLabel.hidden = !ranges.some(([start, stop]) => stop - start > 3);
      places.forEach(({ node }) => (node.hidden = false));
      this.folds.forEach(({ node }) => node.remove());
      if (this.folding)
        ranges.forEach(([start, stop], n) => {
          if (stop - start <= 3) return;
          for (let p = start; p < stop; p++) places[p].node.hidden = true;
          const { button, node } = this.folds[n];
          const text = this.subject.tokens.slice(start, stop).map((token) => short(token, 20)).join("");
          button.title = `${short(text, 400)}\nClick to unfold`;
          button.replaceChildren(element("b", {}, `${stop - start} tokens`), element("span", { class: "text", dir: "auto" }, short(shown(text), 40)), this.folds[n].value);
          this.folds[n].range = [start, stop];
          places[stop].node.before(node);
        });
      this.measure();
    }

    takeMode(mode) {
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

    takeGate(which) {
      const planes = this.subject.frequencies(this.layer).length;
      let from = Number(this.lowGate.value) - 1, to = Number(this.highGate.value) - 1;
      if (from > to) {
        if (which === "from") to = from;
        else from = to;
      }
      const still = this.stillGate.checked;
      this.gate = from === 0 && to >= planes - 1 && still ? null : { from, to, still };
      this.fresh();
    }

    openGate() {
      this.gate = null;
      this.fresh();
    }

    /* The user's own choice of a head: the rest of the page is told. */
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
      const n = this.subject.layers.findIndex((layer) => layer.layer === Number(detail.layer));
      if (n < 0 || !(Number(detail.head) < this.subject.layers[n].heads)) {
        this.status.textContent = `Layer ${short(String(detail.layer))}, head ${short(String(detail.head))} is not in this playground.`;
        return;
      }
      this.show(n, Number(detail.head));
    }

    show(n, h) {
      const { layers } = this.subject;
      h = Math.min(h, layers[n].heads - 1);
      if (n !== this.layer) {
        const before = this.layer >= 0 && this.subject.frequencies(this.layer).length;
        this.layer = n;
        if (before && before !== this.subject.frequencies(n).length) this.gate = null;
        this.headSelect.replaceChildren(...Array.from({ length: layers[n].heads }, (_, k) => element("option", {}, String(k))));
        const spans = JSON.stringify(this.spans);
        this.respan();
        if (JSON.stringify(this.spans) !== spans) this.restart(); // another window: other tokens can move
      }
      this.head = h;
      this.layerSelect.selectedIndex = n;
      this.headSelect.selectedIndex = h;
      this.fresh();
    }

    respan() {
      this.spans = this.layer < 0 ? [] : this.subject.spans(this.layer, this.mode);
    }

    // ------------------------------------------------------------ orders

    restart() {
      this.respan();
      this.row = this.spans.map((_, k) => k);
      this.history = [{ mode: this.mode, row: this.row }];
      this.now = 0;
      this.chosen = null;
    }

    remember() {
      this.history.splice(this.now + 1);
      this.history.push({ mode: this.mode, row: this.row });
      this.now = this.history.length - 1;
    }

    /* A new order, as a step that can be undone. */
    take(row) {
      this.chosen = null;
      if (row.every((unit, k) => unit === this.row[k])) {
        this.render();
        return;
      }
      this.row = row;
      this.remember();
      this.render();
    }

    travel(step) {
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

    shuffle() {
      const row = [...this.row];
      for (let i = row.length - 1; i > 0; i--) {
        const j = Math.floor(Math.random() * (i + 1));
        [row[i], row[j]] = [row[j], row[i]];
      }
      this.take(row);
    }

    moved(row, from, to) {
      const next = [...row];
      next.splice(to, 0, ...next.splice(from, 1));
      return next;
    }

    typed(event) {
      event.preventDefault();
      const row = this.orderInput.value.split(/[\s,;]+/).filter(Boolean).map(Number), m = this.spans.length;
      const right = row.length === m && [...row].sort((a, b) => a - b).every((unit, k) => unit === k);
      this.orderError.textContent = right ? "" : `Give the numbers 0 to ${m - 1}, each once: the first says which stands first.`;
      if (right) this.take(row);
    }

    // ------------------------------------------------------------ computing and drawing

    /* All that depends on the head, on what moves and on the planes; then what depends on the order. */
    fresh() {
      const { subject, layer: n, head: h, spans } = this;
      const logit = (this.logit = subject.logit(n, h, this.gate));
      const sink = subject.sink(n, h), still = subject.tokens.map((_, p) => p);
      this.before = attention(logit, still, sink);
      this.logTotal = logTotalOf(subject, n, h, logit);
      const units = unitLogits(logit, spans);
      this.scores = swapScores(units, spans.length, this.logTotal, this.tau);
      this.shares = varianceShares(units, spans.length);
      const T = subject.size, M = (this.M = new Float64Array(T * T));
      for (let c = 0; c < T; c++) for (let p = 0; p < T; p++) M[c * T + p] = logit(c, p);
      this.showControls();
      this.showScores();
      this.drawMatrix();
      this.drawPlanes();
      this.startMap();
      this.drawFolds();
      this.render();
    }

    /* What depends on the order: this is all that a drag asks for. */
    render() {
      const started = performance.now();
      const { subject, layer: n, head: h, spans, row } = this;
      this.order = orderOf(subject.size, spans, row);
      this.slots = slotsOf(subject.size, spans, row);
      this.after = attention(this.logit, this.order, subject.sink(n, h));
      this.orderScore = orderScores(this.logit, spans, row, this.logTotal);
      this.drawPlaces();
      this.orderMeters.show(this.orderScore);
      this.verdict.textContent = this.sentence();
      this.drawMarks();
      this.orderMapFrame ||= requestAnimationFrame(() => this.mapOrder());
      this.undoButton.disabled = this.now === 0;
      this.redoButton.disabled = this.now === this.history.length - 1;
      this.resetButton.disabled = !this.orderScore;
      if (document.activeElement !== this.orderInput) this.orderInput.value = row.join(" ");
      this.cost = performance.now() - started;
    }

    drawPlaces() {
      const { before, after, order, slots, spans } = this, T = this.subject.size;
      let top = 0;
      for (let p = 0; p < T; p++) if (slots[p] >= 0) top = Math.max(top, before[p], after[p], before[order[p]]);
      top = top || 1;
      this.scale.textContent = `a full bar is ${top >= 0.001 ? (100 * top).toPrecision(2) : (100 * top).toExponential(1)} %`;
      const held = this.drag && this.drag.begun ? this.drag.unit : null;
      const old = this.drawn, from = new Map(); // places of contents before this change
      if (old) old.forEach((content, place) => from.set(content, place));
      const { blockOf } = this.subject;
      for (let p = 0; p < T; p++) {
        const place = this.places[p], content = order[p], slot = slots[p], unit = slot < 0 ? null : this.row[slot];
        const high = (weight) => Math.min(1, weight / top);
        put(place, "now", `scaleY(${high(after[p])})`, (to) => (place.now.style.transform = to));
        put(place, "cut", after[p] > top * 1.0001, (on) => place.now.classList.toggle("cut", on));
        put(place, "stays", `translateY(${-100 * high(before[p])}%)`, (to) => (place.stays.style.transform = to));
        put(place, "follows", `translateY(${-100 * high(before[content])}%)`, (to) => (place.follows.style.transform = to));
        let lift = high(after[p]); // the number stands on its bar, or on a line just above it
        if (slot >= 0) for (const line of [high(before[p]), high(before[content])].sort((a, b) => a - b)) if (line > lift && line < lift + 0.3) lift = line;
        put(place, "lift", `translateY(${-100 * lift}%)`, (to) => (place.value.style.transform = to));
        put(place, "value", percent(after[p]), (text) => (place.value.textContent = text));
        put(place, "content", content, () => {
          place.text.textContent = shown(this.subject.tokens[content]);
          const block = blockOf.get(content);
          if (block === undefined) place.token.style.removeProperty("--block");
          else place.token.style.setProperty("--block", block);
          place.token.classList.toggle("inblock", block !== undefined);
        });
        const span = unit === null ? null : spans[unit];
        const flags = {
          locked: slot < 0,
          query: p === T - 1,
          first: span !== null && span[1] - span[0] > 1 && content === span[0],
          last: span !== null && span[1] - span[0] > 1 && content === span[1] - 1,
          inner: span !== null && span[1] - span[0] > 1 && content > span[0] && content < span[1] - 1,
          moved: content !== p,
          held: unit !== null && unit === held,
          chosen: unit !== null && unit === this.chosen,
        };
        for (const [name, on] of Object.entries(flags)) put(place, name, on, () => place.token.classList.toggle(name, on));
        put(place, "quiet", slot < 0, (on) => {
          place.node.classList.toggle("quiet", on);
          place.token.setAttribute("aria-disabled", String(on));
        });
        // One stop for the Tab key per unit: its first token.
        put(place, "tab", slot >= 0 && content === span[0] ? 0 : -1, (index) => (place.token.tabIndex = index));
        const label = `${short(shown(this.subject.tokens[content]))}, place ${p}, attention ${(100 * after[p]).toFixed(1)} percent${slot < 0 ? ", stays" : ""}`;
        put(place, "label", label, (text) => place.token.setAttribute("aria-label", text));
        if (old && this.offsets && !quiet.matches && from.get(content) !== p) {
          const [x0, y0] = this.offsets[from.get(content)], [x1, y1] = this.offsets[p];
          if (place.moving) place.moving.cancel();
          place.moving = place.token.animate([{ transform: `translate(${x0 - x1}px, ${y0 - y1}px)` }, { transform: "none" }], { duration: 160, easing: "ease-out" });
        }
      }
      for (const { node, range, value } of this.folds) {
        if (node.isConnected) value.textContent = `${percent(after.slice(...range).reduce((a, b) => a + b, 0)) || "< 0.1"} %`;
      }
      this.drawn = order;
      if (!this.offsets) this.measure();
    }

    measure() {
      const cells = this.places.map(({ node }) => [node.offsetLeft, node.offsetTop, node.offsetWidth, node.offsetHeight]);
      this.offsets = cells.some(([, , width]) => width > 0) ? cells : null;
      this.drawPlanes();
    }

    sentence() {
      const score = this.orderScore;
      const what = { blocks: "sentence", tokens: "token", any: "token" }[this.mode];
      if (!score) return `Drag a ${what} to another place. A positional head stays: it goes on looking at the same places. A symbolic head follows what you drag.`;
      const weight = `${(100 * score.moved).toPrecision(2)} % of the weight`;
      if (score.moved < 0.005) return `Here only ${weight} stood to move, so this order tells little about this head. Move what it looks at.`;
      if (Math.min(score.positional, score.symbolic) > 0.9) return `Stays and follows look alike here: what changed places had nearly equal weights.`;
      if (score.positional - score.symbolic > 0.2) return `Attention stays in its places: in this order the head is positional.`;
      if (score.symbolic - score.positional > 0.2) return `Attention follows the ${what}s: in this order the head is symbolic.`;
      return `Neither: what the head looks at depends on which ${what} stands where.`;
    }

    showControls() {
      for (const radio of this.modes.querySelectorAll("input")) radio.checked = radio.value === this.mode;
      const frequencies = this.subject.frequencies(this.layer), planes = frequencies.length, gate = this.gate;
      const still = this.subject.factors(this.layer).still;
      for (const slider of [this.lowGate, this.highGate]) {
        slider.max = String(Math.max(1, planes));
        slider.disabled = planes === 0;
      }
      this.lowGate.value = String(gate ? gate.from + 1 : 1);
      this.highGate.value = String(gate ? gate.to + 1 : planes);
      this.stillGate.checked = gate ? gate.still : true;
      this.stillLabel.hidden = !still;
      const from = Number(this.lowGate.value), to = Number(this.highGate.value);
      const turn = (f) => {
        const angle = Math.abs(frequencies[f - 1]);
        return angle > 0 ? `${((2 * Math.PI) / angle).toPrecision(3).replace(/e\+?(\d+)/, " × 10^$1")} tokens` : "no number of tokens";
      };
      this.gateText.textContent = planes
        ? `Planes ${from} to ${to} of ${planes}: once around in ${turn(from)} (fastest kept) to ${turn(to)} (slowest). Bars: how much each plane's logits vary over tokens that can move.`
        : "This layer does not rotate: places do not enter.";
      const wide = Math.max(1, planes - 1), track = this.lowGate.parentElement.style;
      track.setProperty("--low", (from - 1) / wide);
      track.setProperty("--high", (planes - to) / wide);
    }

    showScores() {
      this.swapMeters.show(this.scores);
      const what = this.mode === "blocks" ? "sentences" : "tokens", m = this.spans.length;
      const names = { position: "place", symbol: "content", binding: "which content stands where" };
      this.shareBar.replaceChildren();
      if (this.shares) {
        for (const [key] of Object.entries(names)) {
          const part = element("i", { class: key });
          part.style.width = `${100 * this.shares[key]}%`;
          this.shareBar.append(part);
        }
        const said = Object.entries(names).map(([key, name]) => `${(100 * this.shares[key]).toFixed(1)} % ${name}`);
        this.shareText.textContent = `Variance of M: ${said.join(", ")}.`;
        this.shareBar.setAttribute("aria-label", this.shareText.textContent);
      } else this.shareText.textContent = "Fewer than two can move here.";
      let on = 0;
      for (const [start, stop] of this.spans) for (let p = start; p < stop; p++) on += this.before[p];
      this.heldText.textContent = `${m} ${what} can move, ${(m * (m - 1)) / 2} swaps; they hold ${(100 * on).toPrecision(3)} % of the weight, and what stays ${(100 * (1 - on)).toPrecision(3)} %.`;
    }

    /* What canvases need of the style sheet. Asked for seldom: the answer makes the browser lay out the page. */
    readColours() {
      const style = getComputedStyle(this.root);
      this.colours = Object.fromEntries(["ink", "strong", "line"].map((name) => [name, style.getPropertyValue(`--pg-${name}`)]));
    }

    recolour() {
      this.readColours();
      this.drawPlanes();
      this.drawMap(this.swapMap);
      this.drawMap(this.orderMap);
    }

    drawMatrix() {
      const T = this.subject.size, { M } = this, canvas = this.matrix, cell = Math.max(1, Math.floor(560 / T));
      canvas.width = canvas.height = T * cell;
      let low = Infinity, high = -Infinity;
      for (const x of M) {
        if (x === -Infinity) continue;
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
      const small = element("canvas", { width: T, height: T }), context = small.getContext("2d"), image = context.createImageData(T, T);
      for (let i = 0; i < T * T; i++) {
        const [r, g, b] = M[i] === -Infinity ? [128, 128, 128] : heat(high > low ? (M[i] - low) / (high - low) : 0.5);
        image.data.set([r, g, b, 255], 4 * i);
      }
      context.putImageData(image, 0, 0);
      this.picture = small;
      this.matrixCell = cell;
      this.matrixRange = `Rows: tokens, columns: places; logits from ${low.toFixed(2)} (dark) to ${high.toFixed(2)} (light). Dots: who stands where now.`;
      this.matrixText.textContent = this.matrixRange;
      canvas.setAttribute("aria-label", this.matrixRange);
    }

    drawMarks() {
      const context = this.matrix.getContext("2d"), cell = this.matrixCell;
      context.imageSmoothingEnabled = false;
      context.drawImage(this.picture, 0, 0, this.matrix.width, this.matrix.height);
      const radius = Math.max(1.5, cell * 0.32);
      context.lineWidth = Math.max(1, cell * 0.14);
      this.order.forEach((content, place) => {
        context.beginPath();
        context.arc((place + 0.5) * cell, (content + 0.5) * cell, radius, 0, 2 * Math.PI);
        context.fillStyle = content === place ? "#fff" : "#D55E00";
        context.strokeStyle = "#000";
        context.fill();
        context.stroke();
      });
    }

    overMatrix(event) {
      const box = this.matrix.getBoundingClientRect(), T = this.subject.size;
      const c = Math.floor(((event.clientY - box.top) / box.height) * T), p = Math.floor(((event.clientX - box.left) / box.width) * T);
      if (c < 0 || p < 0 || c >= T || p >= T) return;
      this.matrixText.textContent = `“${short(shown(this.subject.tokens[c]), 24)}” (token ${c}) at place ${p}: logit ${this.M[c * T + p].toFixed(3)}`;
    }

    drawPlanes() {
      if (!this.logit || this.layer < 0) return;
      const canvas = this.planes, width = (canvas.width = Math.max(1, 2 * canvas.clientWidth)), height = (canvas.height = 96);
      const places = this.spans.flatMap(([start, stop]) => Array.from({ length: stop - start }, (_, i) => start + i));
      const spread = places.length ? planeSpread(this.subject, this.layer, this.head, places) : [];
      const most = Math.max(...spread, 1e-300), context = canvas.getContext("2d");
      const step = width / Math.max(1, spread.length);
      spread.forEach((value, f) => {
        const on = !this.gate || (f >= this.gate.from && f <= this.gate.to);
        context.fillStyle = this.colours[on ? "strong" : "line"];
        const tall = Math.max(2, Math.sqrt(value / most) * (height - 2));
        context.fillRect(f * step + 1, height - tall, Math.max(1, step - 2), tall);
      });
    }

    // ------------------------------------------------------------ maps of all heads

    /* Scores of all heads, a few milliseconds at a time so that nobody has to wait. */
    startMap() {
      const wanted = JSON.stringify([this.subjects.indexOf(this.subject), this.mode, this.tau, this.gate]);
      if (wanted === this.mapped) {
        this.drawMap(this.swapMap);
        return;
      }
      this.mapped = wanted;
      const { subject, mode, tau, gate } = this, values = (this.swapMap.values = subject.layers.map(() => []));
      this.orderMap.values = subject.layers.map(() => []);
      const todo = subject.layers.flatMap((layer, n) => Array.from({ length: layer.heads }, (_, h) => [n, h]));
      this.mapDone = false;
      const work = () => {
        if (wanted !== this.mapped) return;
        const stop = performance.now() + 6;
        while (todo.length && performance.now() < stop) {
          const [n, h] = todo.shift(), spans = subject.spans(n, mode), logit = subject.logit(n, h, gate);
          values[n][h] = swapScores(unitLogits(logit, spans), spans.length, logTotalOf(subject, n, h, logit), tau);
        }
        this.drawMap(this.swapMap);
        if (todo.length) setTimeout(work, 12);
        else {
          this.mapDone = true;
          this.mapOrder();
          this.tellMap();
        }
      };
      setTimeout(work, 30);
      this.tellMap();
    }

    /* What every head does in this very order. Needs the factors of all layers, which the other map has unpacked. */
    mapOrder() {
      this.orderMapFrame = 0;
      if (!this.mapDone) return;
      const { subject, row, gate, spans } = this, first = subject.first(this.layer);
      const moves = row.some((unit, k) => unit !== k);
      this.orderMap.values = subject.layers.map((layer, n) => {
        const same = moves && subject.first(n) === first; // another window: other tokens can move
        return Array.from({ length: layer.heads }, (_, h) => (same ? orderScores(subject.logit(n, h, gate), spans, row, 0) : null));
      });
      this.drawMap(this.orderMap);
    }

    drawMap(map) {
      const { layers } = this.subject, heads = this.mostHeads(), canvas = map.canvas;
      const wide = Math.max(16, Math.round(160 / heads)), tall = layers.length > 16 ? 14 : 20;
      if (canvas.width !== heads * wide || canvas.height !== layers.length * tall) {
        canvas.width = heads * wide;
        canvas.height = layers.length * tall;
        canvas.style.aspectRatio = `${heads * wide} / ${layers.length * tall}`;
      }
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, canvas.width, canvas.height);
      layers.forEach((layer, n) => {
        for (let h = 0; h < layer.heads; h++) {
          const scores = map.values[n] && map.values[n][h];
          context.fillStyle = scores ? leaning(scores.positional, scores.symbolic) : "rgba(128,128,128,0.18)";
          context.fillRect(h * wide + 1, n * tall + 1, wide - 2, tall - 2);
        }
      });
      context.strokeStyle = this.colours.ink;
      context.lineWidth = 3;
      context.strokeRect(this.head * wide + 1.5, this.layer * tall + 1.5, wide - 3, tall - 3);
    }

    tellMap() {
      const { layers } = this.subject;
      this.mapText.textContent = this.mapDone
        ? `Rows: layers ${layers[0].layer} to ${layers[layers.length - 1].layer}; columns: heads. Blue stays, orange follows, grey both or neither. Click to choose.`
        : "Scoring all heads…";
    }

    // ------------------------------------------------------------ hands

    placeOf(target) {
      const node = target instanceof Element ? target.closest(".place") : null;
      return node ? Number(node.dataset.place) : -1;
    }

    tell(p) {
      if (p < 0 || (this.drag && this.drag.begun)) return;
      const content = this.order[p], name = `“${short(shown(this.subject.tokens[content]))}”`;
      const change = `attention here ${(100 * this.before[p]).toPrecision(3)} % → ${(100 * this.after[p]).toPrecision(3)} %`;
      let why = "";
      if (this.slots[p] < 0) {
        const first = this.subject.first(this.layer);
        why = p === this.subject.query ? " It is the query: it asks, so it stays at the end." : p < first ? " This layer's window does not reach it." : " It belongs to no sentence and stays.";
      }
      this.status.textContent = `${name}, token ${content}${content === p ? "" : `, now at place ${p}`}: ${change}; the token had ${(100 * this.before[content]).toPrecision(3)} % in its own place.${why}`;
    }

    press(event) {
      if (this.drag || !event.isPrimary || event.button !== 0 || !event.target.closest(".token")) return;
      const p = this.placeOf(event.target), slot = this.slots[p];
      this.dragged = false;
      if (slot < 0) return;
      const drag = (this.drag = { id: event.pointerId, touch: event.pointerType === "touch", x: event.clientX, y: event.clientY, slot, start: this.row, slots: this.slots, unit: this.row[slot], place: p, begun: false });
      if (drag.touch) drag.timer = setTimeout(() => this.drag === drag && this.begin(drag.x, drag.y), HOLD);
    }

    begin(x, y) {
      const drag = this.drag, [from, to] = this.spans[drag.unit];
      drag.begun = true;
      this.chosen = null;
      this.stage.setPointerCapture(drag.id);
      drag.ghost = element("div", { class: "ghost" }, short(this.subject.tokens.slice(from, to).map((text) => short(text)).join(""), 40));
      this.root.append(drag.ghost);
      this.root.classList.add("dragging");
      drag.ghost.style.transform = `translate(${x}px, ${y}px)`;
      this.render();
    }

    follow(event) {
      const drag = this.drag;
      if (!drag || event.pointerId !== drag.id) return;
      const far = Math.hypot(event.clientX - drag.x, event.clientY - drag.y);
      if (!drag.begun) {
        if (drag.touch || far < 5) return;
        this.begin(event.clientX, event.clientY);
      }
      [drag.toX, drag.toY] = [event.clientX, event.clientY];
      if (!drag.frame) drag.frame = requestAnimationFrame(() => this.step());
    }

    /* Once per frame: the ghost, and the order if the place under it is another one. */
    step() {
      const drag = this.drag;
      if (!drag || !drag.begun) return;
      drag.frame = 0;
      drag.ghost.style.transform = `translate(${drag.toX}px, ${drag.toY}px)`;
      const slot = this.slotAt(drag.toX, drag.toY);
      const row = this.moved(drag.start, drag.slot, slot);
      if (row.some((unit, k) => unit !== this.row[k])) {
        this.row = row;
        this.render();
      }
    }

    /* The slot whose places, as they were when the drag began, are nearest to a point. */
    slotAt(x, y) {
      const box = this.stage.getBoundingClientRect();
      let best = this.drag.slot, least = Infinity;
      this.drag.slots.forEach((slot, p) => {
        if (slot < 0) return;
        const [left, top, width, height] = this.offsets[p];
        const dx = Math.max(0, left - (x - box.left), x - box.left - left - width), dy = Math.max(0, top - (y - box.top), y - box.top - top - height);
        if (dx * dx + 4 * dy * dy < least) [best, least] = [slot, dx * dx + 4 * dy * dy];
      });
      return best;
    }

    release(event) {
      const drag = this.drag;
      if (!drag || event.pointerId !== drag.id) return;
      if (drag.begun && drag.toX !== undefined) this.step();
      this.letGo(true);
    }

    letGo(keep) {
      const drag = this.drag;
      if (!drag) return;
      this.drag = null;
      clearTimeout(drag.timer);
      cancelAnimationFrame(drag.frame);
      if (!drag.begun) return;
      this.dragged = true; // the click that follows is none
      drag.ghost.remove();
      this.root.classList.remove("dragging");
      const row = this.row;
      this.row = drag.start;
      if (keep) this.take(row);
      else this.render();
    }

    escape() {
      this.letGo(false);
      if (this.chosen === null) return;
      this.chosen = null;
      this.render();
    }

    click(event) {
      const p = this.placeOf(event.target), slot = this.slots[p];
      const after = this.dragged && event.detail > 0;
      this.dragged = false;
      if (after || slot === undefined || slot < 0 || !event.target.closest(".token")) return;
      const unit = this.row[slot];
      if (this.chosen === null) {
        this.chosen = unit;
        this.render();
        this.status.textContent = "Now click another one to swap the two.";
        return;
      }
      const other = this.row.indexOf(this.chosen), row = [...this.row];
      [row[slot], row[other]] = [row[other], row[slot]];
      this.take(row);
    }

    key(event) {
      const p = this.placeOf(event.target), slot = this.slots[p], last = this.spans.length - 1;
      if (slot === undefined || slot < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const columns = this.mode === "blocks" ? 1 : Math.max(1, this.offsets.filter(([, top]) => top === this.offsets[0][1]).length);
      const steps = { ArrowLeft: slot - 1, ArrowRight: slot + 1, ArrowUp: slot - columns, ArrowDown: slot + columns, Home: 0, End: last };
      if (!(event.key in steps)) return;
      event.preventDefault();
      const to = Math.max(0, Math.min(last, steps[event.key])), unit = this.row[slot];
      this.take(this.moved(this.row, slot, to));
      const place = this.order.indexOf(this.spans[unit][0]);
      this.places[place].token.focus({ preventScroll: true });
      this.tell(place);
    }

    shortcut(event) {
      if (!(event.ctrlKey || event.metaKey) || event.target === this.orderInput) return;
      const key = event.key.toLowerCase();
      if (key !== "z" && key !== "y") return;
      event.preventDefault();
      this.travel(key === "y" || event.shiftKey ? 1 : -1);
    }

    // ------------------------------------------------------------ for other scripts, and for tests

    state() {
      const { subject, mode, tau, row, order, before, after, scores, shares, gate, cost, mapDone } = this;
      const map = this.swapMap.values;
      return {
        subject: subject.name, layer: subject.layers[this.layer].layer, head: this.head, mode, tau, row: [...row], order: [...order],
        before, attention: after, scores, shares, gate, cost, thisOrder: this.orderScore, mapDone, map,
        thisOrderMap: this.orderMap.values, M: Array.from(this.M),
      };
    }
  }

  function start(root) {
    if (!root.playground) root.playground = new Playground(root);
    return root.playground;
  }

  window.ropescopePlayground = { start };
  const all = () => document.querySelectorAll(".playground").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
