/* A page of one chart. */

import { fitFrame } from "./frame.js";
import { loadEngine, SAFE } from "./payload.js";

async function show() {
  const spec = JSON.parse(document.querySelector("script[type='application/json']").textContent), embed = await loadEngine();
  const actions = { export: true, source: false, compiled: false, editor: false };
  const { view } = await embed(document.getElementById("chart"), spec, { ...SAFE, actions });
  document.getElementById("chart").view = view;
}

fitFrame();
show();
