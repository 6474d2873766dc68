/* A model on a prompt, read from the data of a run. Its logits follow `ropescope.logits` formula by formula. */

import { decoded } from "./data.js";

/* Vectors of a plane are stored as the model rotated them: divide by the rotation. */
function turnBack(vectors, at, turns, row, planes) {
  for (let f = 0; f < planes; f++) {
    const a = turns[row + 2 * f], b = turns[row + 2 * f + 1], norm = a * a + b * b;
    const x = vectors[at + 2 * f], y = vectors[at + 2 * f + 1];
    vectors[at + 2 * f] = (x * a + y * b) / norm;
    vectors[at + 2 * f + 1] = (y * a - x * b) / norm;
  }
}

/* Layers are decoded when they are first needed. */
export class Subject {
  /* `arrays` are the numbers that the data refer to; none if the data hold them. */
  constructor(data, arrays = null) {
    this.arrays = arrays;
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
    if (!this.turns[table]) this.turns[table] = decoded(this.tables[table].turns, this.arrays);
    return this.turns[table];
  }

  /* Both factors of M = content . place of a layer: place (T, r), content of each head (T, r). */
  factors(n) {
    if (this.unpacked[n]) return this.unpacked[n];
    const layer = this.layers[n];
    const T = this.size, F = this.frequencies(n).length, d = layer.head_dim;
    const turns = this.rotation(n);
    const queries = decoded(layer.queries, this.arrays), keys = decoded(layer.keys, this.arrays);
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
