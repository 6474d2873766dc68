/* Light and dark: as the system has it, until the button is pressed. */

import { isDark, redraw } from "./charts.js";

const darkness = window.matchMedia("(prefers-color-scheme: dark)");
let wanted = null;

function apply() {
  const toggle = document.getElementById("theme"), dark = wanted ?? darkness.matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  toggle.textContent = dark ? "Light" : "Dark";
  toggle.setAttribute("aria-pressed", String(dark));
  redraw();
}

export function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    wanted = !isDark();
    apply();
  });
  darkness.addEventListener("change", apply);
  apply();
}
