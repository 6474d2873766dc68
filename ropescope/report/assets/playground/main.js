/* Starts every playground of the page. */

import { Playground } from "./playground.js";

function start() {
  for (const root of document.querySelectorAll(".playground")) root.playground ??= new Playground(root);
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
