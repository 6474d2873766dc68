"""Writes the tables and facts of the documentation from recorded runs: `make reference`.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; its header is written by hand, its rows here. A fact
stands between `<!-- fact: NAME -->` and `<!-- end of fact -->`: a few words in a sentence, or a whole part of a page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from big_models import TABLES as BIG_MODELS  # noqa: E402

from docs import (  # noqa: E402
    choice_tables,
    cue_tables,
    group_tables,
    length_tables,
    rope_tables,
    sharpen_tables,
    size_tables,
    window_tables,
)
from ropescope.report.scoreboard import counted, markdown, scoreboard  # noqa: E402
from ropescope.runs import read_run  # noqa: E402
from ropescope.studies.checks import page_headline  # noqa: E402
from ropescope.studies.claims import Claim, judge, small_p, span  # noqa: E402
from ropescope.studies.mechanisms.claims import TABLE_1  # noqa: E402
from ropescope.tasks import TASKS  # noqa: E402


def results(name: str) -> dict:
    found: dict = json.loads((ROOT / "results" / name / "summary.json").read_text(encoding="utf-8"))["results"]
    return found


def benchmark_rows() -> list[str]:
    return [
        f"| {tokens} | {row['swaps']:,} | {row['scored_over_plain']:.2f}x | {row['faster_than_rerunning_blocks']:,.0f}x |"
        for tokens, row in results("bench")["scores"].items()
        if int(tokens) <= 128
    ]


def learning_rows() -> list[str]:
    def layers(numbers: list[int]) -> str:
        return ", ".join(f"L{n}" for n in numbers) or "none"

    rows = []
    for name, run in (results("dynamics") | results("dynamics-released")).items():
        pure, learned = run["purity"]["0.1"], ", ".join(map(str, run["learned_at"]))
        worst = min(results(name)["test_accuracy"].values())
        together = f"{run['purity_and_accuracy']['spearman']:.2f}"
        kinds = f"{layers(pure['final_positional'])} | {layers(pure['final_symbolic'])}"
        rows.append(f"| {name} | {learned} | {kinds} | {together} | {worst:.4f} |")
    return rows


def mechanism_rows(task: str, run: str = "mechanisms") -> list[str]:
    found, rows = results(run)[task], []
    flow, planes, paper = found["flow"], found["planes"], TABLE_1[task]
    for n in range(12):
        scores = f"{found['scores']['positional'][n]:.2f} / {found['scores']['symbolic'][n]:.2f}"
        shares = " | ".join(f"{flow[key][n]:.3f}" for key in ("reflexive", "hop", "delivered", "other"))
        plane = f"{planes['mean_plane_by_spread'][n]:.1f} ({planes['planes_in_use_by_spread'][n]:.0f}) | {paper[n]}"
        without = ", ".join(f"{value:.2f}" for value in found["changes"][f"L{n} out"])
        rows.append(f"| L{n} | {scores} | {shares} | {plane} | {without} |")
    return rows


def group_rows(task: str, run: str = "mechanisms") -> list[str]:
    changes = results(run)[task]["changes"]
    return [
        f"| {name} | {' | '.join(f'{value:.3f}' for value in row)} |"
        for name, row in changes.items()
        if not name.startswith("L")
    ]


PROFILES = {
    "profile-smollm2-135m": "SmolLM2-135M-Instruct",
    "profile-gemma3-270m": "Gemma 3 270M",
    "profile-qwen2.5-coder-0.5b": "Qwen2.5-Coder-0.5B-Instruct",
    "profile-qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct",
    "profile-tinyllama-1.1b": "TinyLlama-1.1B-Chat",
    "profile-minimind2-small": "MiniMind2-Small",
    "profile-stories15M": "stories15M",
    "profile-smollm2-135m-unequal": "SmolLM2, sentences of unequal length",
}


def profile_rows() -> list[str]:
    rows = []
    for name, title in PROFILES.items():
        found = results(name)
        r, depth = found["correlation"]["pearson"], found["depth"]
        halves = " | ".join(
            f"{half['first']:.2f}, {half['second']:.2f} ({half['prompts_with_trend']})"
            for half in (depth["positional"], depth["symbolic"])
        )
        noise = span(found["noise"]["r"]) if found["noise"] else "not run"
        size = f"{len(found['layer'])} x {len(found['head'])}"
        right = f"{found['right']} of {found['inputs']}"
        rows.append(f"| {title} | {size} | {right} | {r['r']:.2f} | {noise} | {halves} | {found['worst_check_error']:.0e} |")
    return rows


def band_rows() -> list[str]:
    rows = []
    for name, title in PROFILES.items():
        frequency = results(name)["frequency"]
        bands = " | ".join(
            "{:.2f}, {:.2f}".format(*(frequency["bands"][band][score]["mean"] for score in ("positional", "symbolic")))
            for band in ("fastest", "middle to fast", "slow")
        )
        trend, largest = frequency["trend_of_heads"], frequency["largest"]["norm"]
        places = " and ".join(f"{largest['median'][kind]:g}" for kind in ("positional", "symbolic"))
        within = small_p(largest["with_lead"]["within_layers"]["p_value"])
        rows.append(f"| {title} | {bands} | {trend['share_rising']:.0%} ({trend['median']:.2f}) | {places} ({within}) |")
    return rows


def sensitivity_rows() -> list[str]:
    found = results("profile-smollm2-135m")
    ways = {f"τ = {row['tau']:g}": row for row in found["sensitivity"]["tau"][1:]}
    ways |= {"random permutations of all sentences": found["sensitivity"]["permutations"]}
    ways |= {
        "swaps of single tokens": found["sensitivity"]["tokens"],
        "right answers only": found["right_only"]["all_and_right"],
    }
    return [
        f"| {way} | "
        + " | ".join(
            f"{row[score]['spearman']:.2f} | {row[score]['mean_difference']:+.2f}" for score in ("positional", "symbolic")
        )
        + " |"
        for way, row in ways.items()
    ]


def classical_rows() -> list[str]:
    rows = []
    for name in list(PROFILES)[:5]:
        found = results(name)
        cells = " | ".join(
            f"{found['classical'][kind][score]['spearman']['r']:+.2f}"
            for kind in ("previous_token", "induction", "sink")
            for score in ("positional", "symbolic")
        )
        rows.append(f"| {PROFILES[name]} | {cells} | {found['shares']['spearman']['r']:+.2f} |")
    return rows


def profile_cost_rows() -> list[str]:
    def shown(value: float | None, form: str) -> str:
        return "not run" if value is None else form.format(value)

    rows = []
    for row in results("bench-profile").values():
        hours = None if row["seconds_of_rerunning"] is None else row["seconds_of_rerunning"] / 3600
        ratios = (shown(row[f"{name}_over_plain"], "{:.2f}x") for name in ("scored", "planes", "sensitivity"))
        errors = (shown(row[name], "{:.0e}") if row[name] != 0 else "0" for name in ("score_error", "plane_error"))
        cells = f"{row['tokens']:,}", f"{row['pairs']:,} {row['moves']}", f"{row['swaps']:,}", *ratios, *errors
        rows.append(
            f"| {' | '.join(cells)} | {shown(hours, '{:.2f} hours')} | {shown(row['faster_than_rerunning'], '{:,.0f}x')} |"
        )
    return rows


def family_rows(verified: bool) -> list[str]:
    """Families that were verified, or the others with the reason."""
    rows = []
    for row in json.loads((ROOT / "results/conformance/families.json").read_text(encoding="utf-8")):
        if row["verdict"] == "verified" and verified:
            kinds = ", ".join(row["kinds"])
            rows.append(f"| {row['family']} | {row['layers']} | {row['rotation']} | {kinds} | {row['logit_error']:.0e} |")
        elif row["verdict"] != "verified" and not verified:
            reason = row["reason"].replace("a door we know", "an interface we know")  # as it is called since then
            rows.append(f"| {row['family']} | {row['verdict']} | {reason} |")
    return rows


def canonical_rows() -> list[str]:
    found = results("canonical")["trained"]
    rows = []
    for at, angle in enumerate(found["angles"]):
        cells = [f"{row['mean'][at]:.3f} ± {row['sd'][at]:.3f}" for row in found["sweeps"].values()]
        rows.append(f"| {angle:.3g} | {' | '.join(cells)} |")
    return rows


def canonical_claims() -> list[str]:
    rows = judge([read_run(ROOT / "results/canonical")], "canonical")
    return [f"| `{row.claim}` | {row.statement} | {row.ours} | **{row.verdict}** |" for row in rows]


def canonical_heads() -> list[str]:
    return [
        f"| {name} | {row['beta']:.1f} | {row['positional']:.3f} | {row['symbolic']:.3f} |"
        for name, row in results("canonical")["built"]["scores"].items()
    ]


def canonical_leads() -> list[str]:
    return [
        f"| {row['symbols']} | {row['one_plane']:.5f} | {row['two_planes']:.5f} | {row['two_over_one']:.1f}x |"
        for row in results("canonical")["built"]["leads"]["rows"]
    ]


def _beside(entry: dict, measure: str, digits: int) -> str:
    value = f"{entry['measures'][measure]:.{digits}f}"
    if "random" not in entry:
        return value
    drawn = entry["random"][measure]
    return f"{value} ({drawn['least']:.{digits}f} to {drawn['most']:.{digits}f})"


def control_rows() -> list[str]:
    number, letter = (results(f"control-{task}")["changes"] for task in ("number", "letter"))
    return [
        f"| {name} | " + " | ".join(_beside(of[name], "accuracy", 3) if name in of else "-" for of in (number, letter)) + " |"
        for name in dict.fromkeys((*number, *letter))
    ]


def control_text_rows() -> list[str]:
    rows = []
    for name, entry in results("control-smollm2")["changes"].items():
        answers = [f"{pairs} pairs: {what}" for pairs in (24, 8) for what in ("right of those offered", "log probability")]
        cells = [*(_beside(entry, measure, 2) for measure in answers), _beside(entry, "perplexity", 1)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def llm_rows() -> list[str]:
    rows = []
    for path in sorted((ROOT / "results").glob("llm-*/summary.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        config, found = summary["config"], summary["results"]
        curves = [
            ", ".join(f"{cells[n]['mean']:.2f}" if (n := str(length)) in cells else "-" for length in (12, 32, 100, 300))
            for cells in (found["accuracy"]["number"], found["accuracy"]["letter"])
        ]
        late = f"{found['profile']['symbolic_late']:.2f}" if "profile" in found else "-"
        screened = f"{found['screening']['accuracy']:.2f} | {found['screening']['single']:.2f}"
        sizes = f"{config['samples']} x {config['runs']}"
        rows.append(f"| {config['model']['source']} | {sizes} | {screened} | {curves[0]} | {curves[1]} | {late} |")
    return rows


def engine_rows() -> list[str]:
    return [
        f"| {name} | {row['units']} | {row['speed_up']:.2f}x | {row['speed_up_at_first']:.2f}x | "
        f"{row['speed_up_with_node_lost']:.2f}x | "
        f"{row['units_begun_again']} | {row['files']}, {'all the same' if row['same_bytes'] else 'NOT the same'} |"
        for name, row in results("bench-ray").items()
    ]


def soak_rows() -> list[str]:
    keys = ("points", "at_writes", "inside_writes", "cold", "runs", "files", "lost", "corrupt", "different", "left_over")
    return [f"| {name} | {' | '.join(str(row[key]) for key in keys)} |" for name, row in results("soak").items()]


def hostile_rows() -> list[str]:
    rows = {name: row | {"untried": row["fields"] - row["shown"] - row["refused"]} for name, row in results("hostile").items()}
    keys = ("fields", "shown", "refused", "untried", "opened", "refusals", "errors", "ran")
    return [f"| {name} | {' | '.join(str(row[key]) for key in keys)} |" for name, row in rows.items()]


def fuzz_rows() -> list[str]:
    named = {"kept_units": "cached units", "journals": "answers of chat models"}
    rows = {named.get(name, name): row for name, row in results("fuzz").items() if name != "all"}
    codes = {name: (sum(row.values()), row.get("0", 0)) for name, row in rows.items()}
    return [f"| {name.replace('_', ' ')} | {tried} | {used} | {tried - used} |" for name, (tried, used) in codes.items()]


def watched_rows() -> list[str]:
    """The watched Llama beside GPT-J on the same task."""
    rows = []
    of_gptj = {name: run for name, run in results("dynamics").items() if name.startswith("letter")}
    for name, run in (results("dynamics-letter-llama") | of_gptj).items():
        pure, learned = run["purity"]["0.1"], ", ".join(map(str, run["learned_at"]))
        heads = len(pure["since_positional"])
        counts = f"{len(pure['final_positional'])} | {len(pure['final_symbolic'])} of {heads}"
        rows.append(f"| {name} | {learned} | {counts} | {run['purity_and_accuracy']['spearman']:.2f} |")
    return rows


def fine_tuned_rows() -> list[str]:
    """What the watched SmolLM2 did at its first look and at its last."""
    from ropescope.measures.purity import purity  # noqa: PLC0415
    from ropescope.runs import read_trajectory  # noqa: PLC0415
    from ropescope.studies.histories.milestones import milestones  # noqa: PLC0415

    run = read_trajectory(ROOT / "results" / "watch-smollm2")
    kinds, rows = milestones(run)["kinds"], []
    for at, name in ((0, "first"), (-1, "last")):
        pure = purity(run.measures["positional"][at], run.measures["symbolic"][at])
        loss = "-" if run.loss[at] != run.loss[at] else f"{run.loss[at]:.2f}"
        leaning = f"{kinds[name]['positional']} | {kinds[name]['symbolic']} | {kinds[name]['mixed']}"
        rows.append(f"| {run.steps[at]} | {loss} | {leaning} | {(pure == 1).sum()} | {(pure == -1).sum()} |")
    return rows


def step_rows() -> list[str]:
    """The steps of `ropescope reproduce` in both presets."""
    from ropescope.studies.reproduce.steps import Step, steps  # noqa: PLC0415

    def cell(step: Step | None) -> str:
        if step is None:
            return ""
        asked = step.asked()
        given = {**({"preset": asked["preset"]} if asked["preset"] else {}), **asked["settings"]}
        shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in given.items())
        return f"`{asked['study']}({shown})`"

    quick = {step.name: step for step in steps("quick")}
    return [f"| {step.name} | {step.does} | {cell(quick.get(step.name))} | {cell(step)} |" for step in steps("paper")]


TABLES: dict[str, Callable[[], list[str]]] = {
    "kills": soak_rows,
    "damage": fuzz_rows,
    "hostile": hostile_rows,
    "profiles": profile_rows,
    "bands": band_rows,
    "sensitivity": sensitivity_rows,
    "classical": classical_rows,
    "profile-cost": profile_cost_rows,
    "families": partial(family_rows, True),
    "refused": partial(family_rows, False),
    "benchmark": benchmark_rows,
    **BIG_MODELS,
    "learning": learning_rows,
    "functions-number": partial(mechanism_rows, "number"),
    "functions-letter": partial(mechanism_rows, "letter"),
    "groups-number": partial(group_rows, "number"),
    "groups-letter": partial(group_rows, "letter"),
    **{f"functions-{task}-released": partial(mechanism_rows, task, f"mechanisms-released-{task}-2") for task in TASKS},
    **{f"groups-{task}-released": partial(group_rows, task, f"mechanisms-released-{task}-2") for task in TASKS},
    "angles": canonical_rows,
    "canonical-claims": canonical_claims,
    "built": canonical_heads,
    "leads": canonical_leads,
    "control": control_rows,
    "control-text": control_text_rows,
    "chat": llm_rows,
    "cluster": engine_rows,
    "watched": watched_rows,
    "fine-tuned": fine_tuned_rows,
    "steps": step_rows,
    **length_tables.TABLES,
    **rope_tables.TABLES,
    **sharpen_tables.TABLES,
    **window_tables.TABLES,
    **choice_tables.TABLES,
    **cue_tables.TABLES,
    **size_tables.TABLES,
    **group_tables.TABLES,
}


# Facts


@cache
def claims() -> list[Claim]:
    return scoreboard([ROOT / "results"])


def claim_counts() -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in counted(claims()).items() if count)
    return f"{len(claims())} claims: {counts}"


def family_counts() -> str:
    families = json.loads((ROOT / "results/conformance/families.json").read_text(encoding="utf-8"))
    return f"{sum(row['verdict'] == 'verified' for row in families)} of {len(families)}"


def hostile_later() -> str:
    first, later = results("hostile")["all"], results("hostile-later")["all"]
    fields = later["fields"] - first["fields"]
    return f"{fields:,} fields that are newer, on {later['opened']:,} pages of today's layout: {later['ran'] or 'nothing'} ran"


FACTS: dict[str, Callable[[], str]] = {
    "hostile-later": hostile_later,
    "claim-counts": claim_counts,
    "claims": lambda: f"\n{markdown(claims())}",
    "family-counts": family_counts,
    "page-speed": lambda: f"\n{page_headline(read_run(ROOT / 'results/page'))}.\n",
    **rope_tables.FACTS,
}
TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n\n?(?:\|.*\n){2})((?:\|.*\n)*)(?=\n?<!-- end of table -->)")
FACT = re.compile(r"(<!-- fact: ([\w-]+) -->).*?(<!-- end of fact -->)", re.S)


def written(text: str) -> str:
    """A page with its tables and facts as the recorded runs have them."""
    text = TABLE.sub(lambda found: found[1] + "".join(f"{row}\n" for row in TABLES[found[2]]()), text)
    return FACT.sub(lambda found: f"{found[1]}{FACTS[found[2]]()}{found[3]}", text)


def pages() -> list[Path]:
    """Every page of the documentation, the README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
