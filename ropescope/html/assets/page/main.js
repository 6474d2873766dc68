/* Starts the page. */

import { startAtlas } from "./atlas.js";
import { draw, watchCharts } from "./charts.js";
import { watchFiles } from "./files.js";
import { startFilms } from "./film.js";
import { watchHeads } from "./heads.js";
import { startHeadTables } from "./headtable.js";
import { startScoreboard } from "./scoreboard.js";
import { startTerms } from "./terms.js";
import { startTheme } from "./theme.js";

/* The element that the address of the page leads to, or null. */
function target() {
  try {
    return document.getElementById(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return null; // an address that somebody mistyped
  }
}

/* A link to a run or a chart opens all that it is folded into. */
async function visit() {
  const found = target();
  if (!found) return;
  const own = found.querySelector(":scope > .fold");
  if (own && found.matches(".run")) own.open = true;
  for (let fold = found.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  if (!found.matches("figure[data-chart]")) {
    found.scrollIntoView();
    return;
  }
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
startTerms();
startAtlas();
startHeadTables();
addEventListener("hashchange", visit);
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href^='#']") : null;
  if (link?.hash === location.hash) visit(); // a link that was followed before changes nothing by itself
});
visit();
