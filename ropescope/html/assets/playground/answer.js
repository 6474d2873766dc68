/* What the head does in the order that is shown: one sentence and two meters. */

import { element, number } from "./dom.js";

/* Two bars, for a positional and a symbolic score; `show` takes both scores, or null where there are none. */
export function meters(what) {
  const meter = (kind, label) => {
    const bar = element("i", {}), value = element("output", {});
    const node = element("div", { class: `meter ${kind}`, title: `${kind} score, ${what}` });
    node.append(element("span", {}, label), element("b", {}, bar), value);
    const show = (x) => {
      bar.style.width = `${x === null ? 0 : 100 * x}%`;
      value.textContent = number(x);
    };
    return { node, show };
  };
  const stays = meter("positional", "stays · positional"), follows = meter("symbolic", "follows · symbolic");
  return {
    node: element("div", { class: "meters" }, stays.node, follows.node),
    show(scores) {
      stays.show(scores ? scores.positional : null);
      follows.show(scores ? scores.symbolic : null);
    },
  };
}

function sentence(score, mode) {
  const what = mode === "blocks" ? "sentence" : "token";
  if (!score) return `Drag a ${what} to another place. A positional head stays: it keeps looking at the same places. A symbolic head follows what you drag.`;
  const weight = `${(100 * score.moved).toPrecision(2)} % of the weight`;
  if (score.moved < 0.005) return `Only ${weight} could move here, so this order tells little about this head. Move what it looks at.`;
  if (Math.min(score.positional, score.symbolic) > 0.9) return "Staying and following look alike here: the units that changed places had nearly equal weights.";
  if (score.positional - score.symbolic > 0.2) return "Attention stays in its places: in this order the head is positional.";
  if (score.symbolic - score.positional > 0.2) return `Attention follows the ${what}s: in this order the head is symbolic.`;
  return `Neither: what the head looks at depends on which ${what} stands where.`;
}

export class Answer {
  constructor() {
    this.verdict = element("p", { class: "verdict" });
    this.meters = meters("this order");
    this.node = element("div", { class: "answer" }, this.verdict, this.meters.node);
  }

  draw({ orderScore, mode }) {
    this.meters.show(orderScore);
    this.verdict.textContent = sentence(orderScore, mode);
  }
}
