/* The explanation that folds out below a playground. */

import { element } from "./dom.js";

const ITEMS = [
  "Each bar is the weight that the last token (the query, locked at the end) gives to the token at that place, in one head of one layer.",
  "Drag a token with the mouse, or hold a finger on it and drag; or focus it and use the arrow keys, Home and End; or click two to swap them. Escape cancels. Ctrl+Z undoes.",
  "The blue line is where a bar would end if attention stayed in its place (a positional head), the orange one if it followed its token (a symbolic head). All bars have one scale: the largest bar of a token that can move is full. Larger bars of other tokens are cut off and striped.",
  "What moves is the input of the layer at each token: its keys are rotated by RoPE to their new places, and logits, softmax and scores are recomputed from M. Earlier layers are not run again.",
  "Grey tokens are fixed: the query, and tokens in no sentence (begin of text, template, question), which only take their share of the weight. The first token often gets most of it, as an attention sink. Choose “any token” to move these too.",
  "Both scores weigh each swap by how much weight it would move, at temperature τ; the shares say what M depends on, without any swap. Frequencies: M is computed from the chosen planes alone, as if the others were removed from this head.",
];

export function help() {
  const items = ITEMS.map((text) => element("li", {}, text));
  return element("details", {}, element("summary", {}, "How to read and use this"), element("ul", {}, ...items));
}
