/* Starts every playground of the page. */

import { Playground } from "./playground.js";

function start() {
  for (const root of document.querySelectorAll(".playground")) {
    try {
      root.playground ??= new Playground(root);
    } catch (error) {
      root.replaceChildren("This playground could not be shown."); // others can
      console.error(error);
    }
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
