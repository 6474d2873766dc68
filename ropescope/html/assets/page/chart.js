/* A page of one chart. */

import { decompressed, loadEngine, SAFE } from "./payload.js";

async function show() {
  const [spec, embed] = await Promise.all([decompressed(document.querySelector(".payload").textContent), loadEngine()]);
  const actions = { export: true, source: false, compiled: false, editor: false };
  const { view } = await embed(document.getElementById("chart"), JSON.parse(spec), { ...SAFE, actions });
  document.getElementById("chart").view = view;
}

show();
