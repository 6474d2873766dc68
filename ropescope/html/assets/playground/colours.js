/* Colours of the canvases. */

/* Blue for a positional head, orange for a symbolic one, grey for neither or both. */
export function leaning(positional, symbolic) {
  const lean = positional - symbolic, grey = [150, 150, 150], full = lean > 0 ? [0, 114, 178] : [213, 94, 0];
  const share = Math.min(1, Math.abs(lean));
  return `rgb(${grey.map((g, i) => Math.round(g + (full[i] - g) * share)).join(",")})`;
}

const STOPS = [[0, 32, 77], [61, 77, 107], [124, 123, 120], [187, 174, 108], [255, 234, 70]]; // colour-blind safe, dark to light

/* Red, green and blue of a number between 0 and 1. */
export function heat(x) {
  const at = Math.max(0, Math.min(1, x)) * (STOPS.length - 1), i = Math.min(STOPS.length - 2, Math.floor(at));
  return STOPS[i].map((low, k) => Math.round(low + (STOPS[i + 1][k] - low) * (at - i)));
}
