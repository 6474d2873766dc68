"""Every rotary family of `transformers`: verified, or refused with the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...console import first_line
from ...models.adapter import ROUNDED, Adapter, LayerRead, RefusedError
from ...runs import Run, read_run
from ..study import Outcome, Work
from . import RECORDED, Settings
from .families import rotary_families, tiny

TOKENS = 24
LIMIT = 1e-9
"""Largest error of logits, relative to their size, of a family that computes them in double precision."""

Row = dict[str, Any]


def run(settings: Settings, work: Work) -> Outcome:
    """A row for each family, and how many have each verdict."""
    known = rotary_families()
    names = list(settings.families) or known
    before = _recorded(settings.against)
    if strange := sorted(set(names) - set(known)):
        raise ValueError(f"{', '.join(strange)}: no rotary decoder family of the installed transformers has this name")
    rows = list(work.progress((check_family(name, settings.seed) for name in names), len(names), "families"))
    data = {"families.json": json.dumps(rows, indent=1) + "\n"}
    found = counts(rows)
    if before is not None:
        whole = not settings.families
        found["changes"] = changes(before.read("families.json") or [], rows, whole)
        found["against"] = {name: before.summary["versions"].get(name) for name in ("transformers", "torch")}
    return Outcome({"families": len(names), "seed": settings.seed}, found, data)


def _recorded(folder: str) -> Run | None:
    """The run to compare with; None if it is the recorded one and is not there."""
    if not (Path(folder) / "summary.json").is_file():
        if folder == RECORDED:
            return None
        raise ValueError(f"against must be the run folder of a conformance run, and {folder} is none")
    run = read_run(Path(folder))
    if run.command != "conformance":
        raise ValueError(f"against must be the run folder of a conformance run, and {folder} holds one of {run.command}")
    return run


def changes(before: Sequence[Row], after: Sequence[Row], whole: bool = True) -> list[dict[str, str]]:
    """What has changed in any family: new and lost ones, verdicts, layers and rotations, and errors that grew tenfold.

    whole  whether both are of all families, so that one may be missing
    """
    old, new = ({row["family"]: row for row in rows} for rows in (before, after))
    found = []
    for name in sorted({*old, *new} if whole else new):
        ours, theirs = new.get(name), old.get(name)
        if ours is None or theirs is None:
            found.append({"family": name, "what": "family", "before": _there(theirs), "after": _there(ours)})
            continue
        found += [
            {"family": name, "what": key, "before": str(theirs[key]), "after": str(ours[key])}
            for key in ("verdict", "reason", "layers", "rotation")
            if theirs[key] != ours[key]
        ]
        errors = theirs["logit_error"], ours["logit_error"]
        if None not in errors and errors[1] > 10 * max(errors[0], 1e-15):
            found.append({"family": name, "what": "error", "before": f"{errors[0]:.0e}", "after": f"{errors[1]:.0e}"})
    return found


def _there(row: Row | None) -> str:
    return "not there" if row is None else str(row["verdict"])


def check_family(family: str, seed: int = 0) -> Row:
    """The verdict on a family, from a tiny random model in double precision, or in single precision if it knows no other.

    verdict       verified, refused, or not built: what stops `transformers` itself from running it
    logit_error   of logits after really moving tokens, against those that `M` predicts, relative to their size from 1 up
    weight_error  of attention weights from the diagonal of `M`, against the model's own
    single        whether some layer computes logits in single precision whatever the model's own
    """
    row = _checked(family, seed, torch.float64)
    if row["verdict"] == "not built":
        again = _checked(family, seed, torch.float32)
        row = row if again["verdict"] == "not built" else again
    return row


def _checked(family: str, seed: int, dtype: torch.dtype) -> Row:
    """The verdict on a family in one precision."""
    row: Row = {"family": family, "verdict": "verified", "reason": None, "layers": None, "rotation": None}
    row |= {"logit_error": None, "weight_error": None, "single": None, "kinds": []}
    try:
        model = tiny(family, seed, dtype)
    except Exception as error:  # whatever keeps a family from being built is its verdict
        return row | {"verdict": "not built", "reason": _reason(error)}
    errors: list[float] = []
    kinds: set[str] = set()
    rotations: set[str] = set()

    def on_layer(read: LayerRead) -> None:
        errors.append(read.error)
        heads = read.heads
        rotations.add(_rotation(read))
        kinds.update(_kinds(read))
        if heads.keys.shape[1] < heads.queries.shape[1]:
            kinds.add("grouped queries")

    try:
        adapter = Adapter(model)
        ids = torch.randint(4, 60, (1, TOKENS), generator=torch.Generator().manual_seed(seed))
        adapter.read(ids, on_layer)
    except RefusedError as error:
        return row | {"verdict": "refused", "reason": str(error).removeprefix(f"{family}: ")}
    except Exception as error:
        return row | {"verdict": "not built", "reason": _reason(error)}
    single = max(adapter.errors) > LIMIT
    assert max(adapter.errors) <= (ROUNDED if single else LIMIT)  # the adapter's own limits, stated where they are reported
    return row | {
        "layers": len(adapter.layers),
        "rotation": ", ".join(sorted(rotations)),
        "logit_error": float(f"{max(adapter.errors):.1e}"),
        "weight_error": float(f"{max(errors):.1e}"),
        "single": single,
        "kinds": sorted(kinds),
    }


def _rotation(read: LayerRead) -> str:
    rope = read.heads.rope
    if not rope.frequencies:
        return "none"
    share = "" if rope.rotary_dim == rope.head_dim else f", {rope.rotary_dim} of {rope.head_dim} dimensions"
    return rope.pairing + share


def _kinds(read: LayerRead) -> list[str]:
    heads = read.heads
    found = {
        "window": heads.window is not None,
        "chunks": heads.chunk is not None,
        "soft-cap": heads.soft_cap is not None,
        "sinks": heads.sinks is not None,
        "factor on rotation": heads.turns is not None and bool((heads.turns.abs() - 1).abs().max() > 1e-3),
    }
    return [kind for kind, there in found.items() if there]


def counts(rows: Sequence[Row]) -> dict[str, Any]:
    """How many families have each verdict, and the worst errors of those verified."""
    good = [row for row in rows if row["verdict"] == "verified"]
    return {
        "verdicts": dict(Counter(row["verdict"] for row in rows)),
        "verified_in_double_precision": sum(not row["single"] for row in good),
        "worst_logit_error": max((row["logit_error"] for row in good if not row["single"]), default=None),
        "worst_logit_error_single": max((row["logit_error"] for row in good if row["single"]), default=None),
        "worst_weight_error": max((row["weight_error"] for row in good), default=None),
    }


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else first_line(error)  # the reason may come after a colon
    return f"{type(error).__name__}: {text}"[:160]
