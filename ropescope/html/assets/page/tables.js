/* Charts and their rows. */

import { atNight } from "./look.js";
import { payload } from "./payload.js";
import { ownerOf } from "./state.js";

/* The rows of a table, which is stored by column. */
export function rows(table) {
  const columns = Object.entries(table.columns);
  return Array.from({ length: table.length }, (_, n) => Object.fromEntries(columns.map(([name, values]) => [name, values[n]])));
}

/* The names of the tables that a chart draws. */
function tableNames(spec) {
  const names = new Set();
  JSON.stringify(spec, (key, value) => {
    if (key === "data" && value && typeof value.name === "string") names.add(value.name);
    return value;
  });
  return [...names];
}

/* A chart for a narrow window: what stands side by side comes one below the other, legends below charts. */
function narrowed(spec) {
  const next = { ...spec };
  if (next.hconcat) {
    next.vconcat = next.hconcat.map(narrowed);
    delete next.hconcat;
  } else if (next.vconcat) next.vconcat = next.vconcat.map(narrowed);
  else if (next.concat) Object.assign(next, { concat: next.concat.map(narrowed), columns: 1 });
  else if (next.facet && !next.facet.row && !next.facet.column) next.columns = 1;
  return next;
}

/* A chart with its rows. On the page its title stands above it; in files it is part of the picture. */
export async function specOf(figure, dark, titled, narrow = false) {
  const { charts, tables } = await payload(ownerOf(figure));
  let spec = structuredClone(charts[figure.dataset.chart]);
  if (!titled) delete spec.title;
  if (dark) spec = atNight(spec);
  if (narrow) spec = narrowed(spec);
  spec.datasets = Object.fromEntries(tableNames(spec).map((name) => [name, rows(tables[name])]));
  return spec;
}

/* Rows with lists in them as one row for each element of the lists. */
function unfolded(row) {
  const lists = Object.entries(row).filter(([, value]) => Array.isArray(value));
  const count = lists.length ? Math.max(...lists.map(([, value]) => value.length)) : 1;
  return Array.from({ length: count }, (_, at) => ({
    ...row,
    ...Object.fromEntries(lists.map(([name, value]) => [name, value[at]])),
  }));
}

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/* Lines of values as CSV. */
export const csvText = (lines) => lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";

/* The rows of a chart as CSV, without small tables that only decorate it and without texts for tooltips. */
export async function csvOf(figure) {
  const { charts, tables } = await payload(ownerOf(figure));
  const all = tableNames(charts[figure.dataset.chart]).map((name) => rows(tables[name]).flatMap(unfolded));
  const most = Math.max(...all.map((table) => table.length));
  const large = all.filter((table) => 20 * table.length >= most);
  const lines = large.flatMap((table, n) => (large.length > 1 ? table.map((row) => ({ part: n + 1, ...row })) : table));
  const names = [...new Set(lines.flatMap((line) => Object.keys(line)))].filter((name) => !name.endsWith("_text"));
  return csvText([names, ...lines.map((line) => names.map((name) => line[name]))]);
}
