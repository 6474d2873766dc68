/* Starts the page. */

import { draw, watchCharts } from "./charts.js";
import { watchFiles } from "./files.js";
import { startFilms } from "./film.js";
import { watchHeads } from "./heads.js";
import { startScoreboard } from "./scoreboard.js";
import { startTheme } from "./theme.js";

/* The element that the address of the page leads to, or null. */
function target() {
  try {
    return document.getElementById(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return null; // an address that somebody mistyped
  }
}

/* A link to a run or a chart opens the section that it is folded into. */
async function visit() {
  const found = target(), details = found?.closest(".run")?.querySelector("details");
  if (!details) return;
  details.open = true;
  if (!found.matches("figure")) return;
  await draw(found);
  found.scrollIntoView();
  found.focus({ preventScroll: true });
}

startTheme();
watchHeads();
startFilms();
watchFiles();
startScoreboard();
watchCharts();
const contents = document.querySelector("nav details");
if (contents && innerWidth < 640) contents.open = false;
addEventListener("hashchange", visit);
visit();
