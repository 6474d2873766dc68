/* Orders of units (sentences or tokens). A row lists which unit stands in which slot; a span is the half-open range of a unit. */

/* Which content stands at each place when slot k holds unit row[k]; tokens in no unit keep their order between them. */
export function orderOf(size, spans, row) {
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
export function slotsOf(size, spans, row) {
  const slots = new Array(size).fill(-1);
  let at = 0;
  spans.forEach(([start], k) => {
    at += start - (k ? spans[k - 1][1] : 0);
    const [from, to] = spans[row[k]];
    for (let p = from; p < to; p++) slots[at++] = k;
  });
  return slots;
}

/* A row after the unit in one slot has moved to another. */
export function movedTo(row, from, to) {
  const next = [...row];
  next.splice(to, 0, ...next.splice(from, 1));
  return next;
}

export function shuffled(row) {
  const next = [...row];
  for (let i = next.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [next[i], next[j]] = [next[j], next[i]];
  }
  return next;
}

/* The row that a text gives, or null if it does not name each of m units once. */
export function parsedRow(text, m) {
  const row = text.split(/[\s,;]+/).filter(Boolean).map(Number);
  const complete = row.length === m && [...row].sort((a, b) => a - b).every((unit, k) => unit === k);
  return complete ? row : null;
}
