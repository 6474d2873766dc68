/* Attention and scores of one head, computed from its logits M(content, place). They follow `ropescope.measures` formula by formula. */

function logSum(values) {
  let most = -Infinity;
  for (const value of values) if (value > most) most = value;
  if (most === -Infinity) return most;
  let sum = 0;
  for (const value of values) sum += Math.exp(value - most);
  return most + Math.log(sum);
}

export function attention(logit, order, sink) {
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
export function orderScores(logit, spans, row, logTotal) {
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
export function unitLogits(logit, spans) {
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
export function logTotalOf(subject, n, h, logit) {
  const values = [subject.sink(n, h)];
  for (let p = subject.first(n); p < subject.size; p++) values.push(logit(p, p));
  return logSum(values);
}

/* Positional and symbolic score over all swaps of two units. */
export function swapScores(units, m, logTotal, tau) {
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
export function varianceShares(units, m) {
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
export function planeSpread(subject, n, h, places) {
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
