/* The numbers of a playground: stored in the page as compressed bytes, or in its JSON. */

function bytesOf(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/* An array as numbers of double precision. */
export function decoded(packed, arrays) {
  if ("at" in packed) return Float64Array.from(arrays[packed.type].subarray(packed.at, packed.at + packed.length));
  const bytes = bytesOf(packed.base64);
  return packed.type === "float32" ? Float64Array.from(new Float32Array(bytes.buffer)) : new Float64Array(bytes.buffer);
}

/* Bytes of numbers from all their first bytes, then all second ones, and so on. */
function joined(bytes, from, count, size) {
  const found = new Uint8Array(count * size);
  for (let k = 0; k < size; k++) for (let n = 0, at = from + k * count; n < count; n++) found[n * size + k] = bytes[at++];
  return found.buffer;
}

/* Resolves to what a playground shows, and to the arrays that it refers to. */
export async function unpacked(root) {
  const { data, counts } = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const packed = bytesOf(root.querySelector('script[type="text/plain"]').textContent);
  const opened = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(opened).arrayBuffer());
  const float32 = new Float32Array(joined(bytes, 0, counts[0], 4)), float64 = new Float64Array(joined(bytes, 4 * counts[0], counts[1], 8));
  return { data, arrays: { float32, float64 } };
}
