/* Starts every live part of the page: playgrounds of runs when they come near, all else at once. */

import { unpacked } from "./data.js";
import { Duet } from "./duet.js";
import { Playground } from "./playground.js";

const heard = new Map(); // run -> the head that was last chosen

function failed(root, error) {
  root.replaceChildren("This part of the page could not be shown."); // others can
  console.error(error);
}

/* Resolves when a playground is there. */
function play(root) {
  root.starting ??= unpacked(root)
    .then((data) => {
      root.playground = new Playground(root, data);
      const head = heard.get(root.dataset.run);
      if (head) root.playground.heard(head);
    })
    .catch((error) => failed(root, error));
  return root.starting;
}

function start() {
  for (const root of document.querySelectorAll(".duet")) {
    try {
      root.duet ??= new Duet(root);
    } catch (error) {
      failed(root, error);
    }
  }
  document.addEventListener("ropescope:head", ({ detail }) => detail && heard.set(detail.run, detail));
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) play(entry.target);
    },
    { rootMargin: "600px 0px" },
  );
  for (const root of document.querySelectorAll(".playground")) {
    root.play = () => play(root);
    if (root.closest(".run")) watcher.observe(root);
    else play(root);
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
