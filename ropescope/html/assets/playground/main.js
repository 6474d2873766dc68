/* Starts every live part of the page. */

import { Duet } from "./duet.js";
import { Playground } from "./playground.js";

function start() {
  for (const [name, Part] of [["duet", Duet], ["playground", Playground]])
    for (const root of document.querySelectorAll(`.${name}`)) {
      try {
        root[name] ??= new Part(root);
      } catch (error) {
        root.replaceChildren("This part of the page could not be shown."); // others can
        console.error(error);
      }
    }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
