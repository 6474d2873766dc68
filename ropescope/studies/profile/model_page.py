"""The page of one model: its heads in words, examples, what to do next, and a table of all heads."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ...measures.purity import MARGIN
from ...runs import Run
from ..story import View
from .head_list import COLUMNS, TOLD, can_be_judged, head_list, seen_example
from .rows import planes_measured
from .tables import dataset

SHOWN = 10
"""Heads of each kind that are named."""
MEANING = {
    "positional": "attend to places: when two keys change places, the weights stay where they were",
    "symbolic": "attend to things: when two keys change places, the weights go with them",
    "mixed": f"do some of both: neither score leads by {MARGIN} or more",
}
"""What a head of each kind does."""


def _prompts(run: Run) -> dict[str, Any]:
    """What the settings say of the prompts, as far as they are of this version."""
    found = run.config.get("prompts")
    return found if isinstance(found, dict) else {}


def title(run: Run) -> str:
    """What the page calls the run: the model, and what is special about the prompts."""
    name, prompts = model_name(run), _prompts(run)
    if prompts.get("kind") not in (None, "binding", "given"):
        return f"{name} on {prompts['kind']}"
    return f"{name}, sentences of unequal length" if prompts.get("lengths") == "unequal" else name


def model_name(run: Run) -> str:
    """The name of the model, without the organisation it is published by."""
    return str(run.results["model"] or "model").rstrip("/").split("/")[-1]


def lead(run: Run) -> View:
    """What stands first on the page of a model: counts, examples of heads, frequencies."""
    rows = head_list(run)
    stats = run.results
    judged = sum(can_be_judged(row) for row in rows)
    kinds = [
        {"kind": kind, "count": stats["kinds"][kind], "share": stats["kinds"][kind] / len(rows), "means": MEANING[kind]}
        for kind in MEANING
    ]
    data = {
        "model": model_name(run),
        "heads": len(rows),
        "layers": len(stats["layer"]),
        "facts": facts(run),
        "kinds": kinds,
        "unscored": stats["kinds"]["unscored"],
        "not_judged": len(rows) - judged,
        "knows_judged": bool(stats.get("judged")),
        "examples": (found := examples(run, rows)),
        "swapped": any(head["example"] and head["example"]["after"] for kind in found.values() for head in kind),
        "frequencies": frequencies(stats),
    }
    return View("model.html", data)


def tail(run: Run) -> View:
    """What stands last: a table of all heads that can be sorted, filtered and downloaded, and what to do next."""
    rows = head_list(run)
    columns: list[dict[str, Any]] = [
        {"name": name, "title": text, "told": TOLD.get(name, "")}
        | {"digits": 0 if name in ("layer", "plane") else 3, "percent": name == "judged"}
        for name, text in COLUMNS.items()
        if any(row.get(name) is not None for row in rows)
    ]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    values = {column["name"]: [row.get(column["name"]) for row in rows] for column in columns}
    steps = next_steps(run)
    shown = {"model": model_name(run), "columns": columns, "kinds": sorted(kinds), "count": len(rows), "steps": steps}
    return View(
        "headtable.html",
        shown | {"needs_model": any("MODEL" in step["how"] for step in steps)},
        {"columns": columns, "values": values, "length": len(rows), "file": f"{run.name}-heads.csv"},
    )


def facts(run: Run) -> dict[str, str]:
    """What the model is, and what it was profiled on."""
    model, stats = run.config.get("model", {}), run.results
    weights = model.get("weights") or {}
    return {
        name: text
        for name, text in {
            "Family": str(model.get("family") or ""),
            "Size": f"{size_text(model['parameters'])} parameters" if model.get("parameters") else "",
            "Precision": str(stats["precision"] or ""),
            "Prompts": str(stats["prompts"] or ""),
            "Weights": ", ".join(f"SHA-256 {digest[:12]}\N{HORIZONTAL ELLIPSIS}" for digest in weights.values()),
        }.items()
        if text
    }


def size_text(parameters: float) -> str:
    """A number of parameters in three digits: 135 M, 1.78 B."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if parameters >= size:
            value = parameters / size
            return f"{value:.3g} {unit}"
    return str(int(parameters))


def examples(run: Run, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The most positional and the most symbolic heads, each with what it does on a prompt, as far as the run folder tells."""
    from .answers import head_table, leading, swap_text  # noqa: PLC0415  # needs torch, which pages without profiles do not

    scores = dataset(run) if (run.folder / "profile.nc").exists() else None
    of_head = {row["head"]: row for row in rows}
    if scores is not None:
        found = leading(head_table(scores), SHOWN)
    else:
        known = [row for row in rows if row["lead"] is not None]
        found = leading(
            [{"name": row["head"], "lead": -row["lead"], "judged": float(can_be_judged(row))} for row in known], SHOWN
        )
    wanted = {(of_head[row["name"]]["layer"], of_head[row["name"]]["number"]) for kind in found.values() for row in kind}
    swaps = _swaps(run, wanted)
    listed: dict[str, list[dict[str, Any]]] = {}
    for kind, heads in found.items():
        listed[kind] = []
        for row in heads:
            head = of_head[row["name"]]
            shown = {"name": row["name"], "looks_at": head["looks_at"], "swap": swap_text(row) if scores is not None else ""}
            shown |= {score: row.get(score, head[score]) for score in ("positional", "symbolic")}
            example = swaps.get((head["layer"], head["number"]))
            seen = seen_example(scores, head) if example is None and scores is not None else None
            listed[kind].append(shown | {"example": example or seen})
    return listed


def _swaps(run: Run, wanted: set[tuple[int, int]]) -> Mapping[tuple[int, int], dict[str, Any]]:
    stored = Run(run.folder, run.summary).read("playground.json")  # as it is: None has a meaning in it
    if not stored or not wanted:
        return {}
    from .swaps import swap_examples  # noqa: PLC0415  # needs torch

    return swap_examples(stored["subjects"][0], wanted)


def frequencies(stats: Mapping[str, Any]) -> list[str]:
    """What the profile says of RoPE frequencies, in sentences; none if planes were not scored."""
    if not planes_measured(stats):
        return []
    found, planes = stats["frequency"], len(stats["frequency"]["plane"])
    told = []
    median = found["largest"]["norm"]["median"]
    known = [f"{median[kind]:g} in {kind} heads" for kind in ("positional", "symbolic") if median.get(kind) is not None]
    if known:
        told.append(f"The plane with a head's largest logits (of {planes}, 1 is the fastest; median) is {' and '.join(known)}.")
    share = found["trend_of_heads"].get("share_rising")
    if share is not None:
        of = found["trend_of_heads"]["heads"]
        told.append(f"In {round(share * of)} of {of} heads, slow planes alone lean more to the symbolic side than fast ones.")
    return told


def next_steps(run: Run) -> list[dict[str, str]]:
    """What to do with the model next, and the commands for it."""
    source, prompts = str(run.config.get("model", {}).get("source") or ""), _prompts(run)
    if prompts.get("kind") == "given":
        return _next_in_python()
    model = shlex.quote(source) if source.count("/") == 1 else "MODEL"  # of a folder or file only the name is recorded
    folder = shlex.quote(str(run.folder))
    other = "prose" if prompts.get("kind") == "binding" else "binding"
    return [
        {
            "what": "Intervene",
            "why": "Remove heads of one kind, or RoPE planes, and measure what the model can still do.",
            "how": f"ropescope control {model} --heads all\nropescope control {model} --drop fast",
        },
        {
            "what": "Compare",
            "why": "The same model on other prompts, another revision or another precision, head by head.",
            "how": f"ropescope profile {model} --prompts {other} --out out/other\nropescope compare {folder} out/other",
        },
        {
            "what": "Watch",
            "why": "When did heads become what they are? Over checkpoints of a training, or during your own.",
            "how": "ropescope dynamics FOLDER_OF_CHECKPOINTS --out out/dynamics",
        },
        {
            "what": "Use the numbers",
            "why": "All scores are a labelled dataset; every chart of this page is one call.",
            "how": f"import ropescope as rs\nresult = rs.open_run({str(run.folder)!r})\nresult.dataset; result.plot()",
        },
    ]


def _next_in_python() -> list[dict[str, str]]:
    return [
        {
            "what": "Intervene",
            "why": "Drop RoPE planes, or remove heads, while the model runs. Weights are not changed.",
            "how": "adapter = rs.Adapter(model)\n"
            'with rs.intervene(model, rs.drop_planes(adapter, "fast")):\n    changed = rs.profile(model, prompts)',
        },
        {
            "what": "Compare",
            "why": "Save the scores of both and compare them head by head.",
            "how": 'rs.save_run(changed, "out/changed")\nrs.run("compare", a="out/this", b="out/changed")',
        },
        {
            "what": "Watch",
            "why": "Follow all heads while the model trains.",
            "how": 'with rs.HeadWatcher(model, prompts, out="out/watch", every=100) as watcher:\n    ...  # watcher.step(step)',
        },
    ]
