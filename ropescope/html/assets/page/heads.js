/* The choice of a head. Everything that shows heads announces and hears it through one event. */

import { follow } from "./charts.js";
import { payload } from "./payload.js";
import { figuresOf, headName, parsedHead, pick, sections, setHead, wantedHead, wantHead, whenOpen } from "./state.js";

/* Layer and head of a name if the run has such a head, else null. */
function headIn(choice, name) {
  const found = parsedHead(name);
  return found && choice.layers.includes(found.layer) && choice.heads.includes(found.head) ? found : null;
}

async function show(section, name) {
  const picker = section.querySelector(".picker");
  if (!picker) return;
  const { choice } = await payload(section);
  const found = headIn(choice, name);
  if (!found) return;
  setHead(section, name);
  picker.querySelector("[data-pick=layer]").value = found.layer;
  picker.querySelector("[data-pick=head]").value = found.head;
  picker.querySelector("output").textContent = choice.described[name] ?? "no scores";
  for (const word of section.querySelectorAll("[data-head]")) word.textContent = name;
  await Promise.all(figuresOf(section).map(follow));
}

async function fillPicker(section) {
  const picker = section.querySelector(".picker");
  if (!picker || picker.dataset.filled) return;
  picker.dataset.filled = "yes";
  const { choice } = await payload(section);
  const [layer, head] = ["layer", "head"].map((name) => picker.querySelector(`[data-pick=${name}]`));
  layer.replaceChildren(...choice.layers.map((n) => new Option(`L${n}`, n)));
  head.replaceChildren(...choice.heads.map((n) => new Option(`H${n}`, n)));
  const all = choice.layers.flatMap((n) => choice.heads.map((m) => headName(n, m)));
  const now = () => headName(layer.value, head.value);
  for (const box of [layer, head]) box.addEventListener("change", () => pick(section, now()));
  for (const button of picker.querySelectorAll("[data-step]"))
    button.addEventListener("click", () => {
      const next = (all.indexOf(now()) + Number(button.dataset.step) + all.length) % all.length;
      pick(section, all[next]);
    });
  // A head may have been chosen before the picker was ready. The event also tells a playground of the run.
  pick(section, headIn(choice, wantedHead(section)) ? wantedHead(section) : choice.first);
}

export function watchHeads() {
  document.addEventListener("ropescope:head", ({ detail }) => {
    if (!detail) return;
    const source = sections.find((section) => section.dataset.run === detail.run);
    for (const section of sections) {
      if (section !== source && !(source?.dataset.model && section.dataset.model === source.dataset.model)) continue;
      const name = headName(detail.layer, detail.head);
      wantHead(section, name);
      show(section, name);
    }
  });
  for (const section of sections) whenOpen(section, () => fillPicker(section));
}
