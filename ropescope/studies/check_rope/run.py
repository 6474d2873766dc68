"""Checks the rotation of every layer of a model or a dump, and states what it found."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...console import name_of
from ...models.adapter import RefusedError
from ...models.load import load_model
from ...models.rope_check import (
    Claims,
    LayerCheck,
    check_dump,
    check_model,
    config_claims,
    dump_config,
    fitted_claims,
    is_manifest,
    open_dump,
)
from ...models.trained_pairing import permuted
from ...rotations.compare import differences
from ..study import Outcome, Work
from . import Settings
from .files import ANGLES, LAYERS

Row = dict[str, Any]


def run(settings: Settings, work: Work) -> Outcome:
    """A row for every layer, the angles by which each departs, and how many are right."""
    started = time.perf_counter()
    try:
        checks, about = _checked(settings)
    except RefusedError as refused:
        raise ValueError(f"{settings.source} cannot be checked: {refused}") from None
    del work
    rows = [row_of(check) for check in checks]
    results = counts(rows) | _of_weights(checks) | {"seconds": round(time.perf_counter() - started, 2), **about}
    data = {
        LAYERS: json.dumps(rows, indent=1, allow_nan=False) + "\n",
        ANGLES: json.dumps([each for check in checks for each in angles_of(check)], allow_nan=False) + "\n",
    }
    config = asdict(settings) | {"source": _shown(settings.source), "reference": _shown(settings.reference)}
    return Outcome(config, results, data)


def _shown(source: str) -> str:
    """A source as it is recorded: without the folders of this machine."""
    return name_of(Path(source)) if Path(source).exists() else source


def _checked(settings: Settings) -> tuple[list[LayerCheck], dict[str, Any]]:
    if is_manifest(settings.source):
        dump = open_dump(settings.source)
        claims = _claims(settings, dump.config, dump.pairing)
        return check_dump(dump, claims), {"what": f"dump of {dump.runtime or 'another runtime'}"}
    loaded = load_model(settings.source, settings.dtype, device=settings.device, revision=settings.revision)
    claims = None if settings.reference == "config" else _claims(settings, None, None)
    checks = check_model(loaded.model, claims, settings.tokens, settings.farthest)
    about = {"what": f"{loaded.about['family']} in {loaded.about['dtype']}", "model": loaded.about}
    if settings.rounds:
        about["cost"] = cost(loaded.model, settings.tokens, settings.farthest, settings.rounds)
    return checks, about


@torch.inference_mode()
def cost(model: Any, tokens: int, farthest: int | None, rounds: int) -> dict[str, float]:
    """Processor time of a check over that of a plain pass, in turns: the median ratio, and the seconds of both."""
    ids = torch.arange(4, 4 + tokens)[None] % 50
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        started = time.process_time()
        model(input_ids=ids, use_cache=False)
        between = time.process_time()
        check_model(model, None, tokens, farthest)
        times.append((between - started, time.process_time() - between))
    plain, checked = np.array(times).T
    ratio = float(np.median(checked / plain))
    found = {"check_over_plain": ratio, "plain_seconds": float(np.median(plain)), "check_seconds": float(np.median(checked))}
    return {name: float(f"{value:.4g}") for name, value in found.items()} | {"rounds": rounds, "tokens": tokens}


def _claims(settings: Settings, config: dict[str, Any] | None, pairing: str | None) -> Claims | None:
    """What the reference claims; None without one."""
    if settings.reference == "config":
        return None if config is None else config_claims(dump_config(config), pairing)
    if is_manifest(settings.reference):
        return fitted_claims(check_dump(open_dump(settings.reference), lambda *_: None))
    path = Path(settings.reference)
    if path.is_dir() and not list(path.glob("*.safetensors")) and (path / "config.json").is_file():
        return config_claims(dump_config(json.loads((path / "config.json").read_text(encoding="utf-8"))), pairing)
    reference = load_model(settings.reference, "float32", device=settings.device).model
    return fitted_claims(check_model(reference, None, settings.tokens, settings.farthest))


def row_of(check: LayerCheck) -> Row:
    """What was found about a layer, for the summary."""
    row: Row = {
        "layer": check.layer,
        "verdict": "departs" if check.departed else "not decided" if check.undecided else "as claimed",
        "undecided": check.undecided,
        "departures": [
            {"part": part, "what": each.what, "said": each.cause, "position": each.position, "plane": each.plane}
            for part, each in check.departed
        ],
    }
    if check.weights is not None:
        own, other = (float(f"{value:.3g}") for value in (check.weights.own, check.weights.other))
        row["weights"] = {"leaning": check.weights.leaning, "own": own, "other": other}
    if not check.fits:
        return row
    fit = check.fits[-1]
    found, scaling = fit.rotation, check.scaling
    turning = np.flatnonzero(found.turning)
    places = [
        place for each in check.fits for place in (each.rotation.seen.positions.min(), each.rotation.seen.positions.max())
    ]
    worst = max(each.rotation.residual for each in check.fits)
    return row | {
        "pairing": found.pairing,
        "first": found.planes.first,
        "dimensions": 2 * found.planes.count if found.pairing == "half" else 2 * len(turning),
        "head_dim": found.head_dim,
        "backwards": bool(len(turning) and np.median(np.sign(found.frequencies[turning])) < 0),
        "scaling": scaling.name,
        "described": str(scaling),
        "constants": {name: float(f"{value:.6g}") for name, value in scaling.constants.items()},
        "factor": None if found.factor is None else float(f"{found.factor:.6g}"),
        "offset": found.offset,
        "precision": check.precision,
        "residual": float(f"{worst:.3g}"),
        "positions": [float(min(places)), float(max(places))],
        "parts": sorted({each.part for each in check.fits}),
        "frequencies": [float(f"{value:.8g}") for value in found.frequencies],
        "errors": [float(f"{value:.2g}") for value in found.errors],
    }


def _of_weights(checks: list[LayerCheck]) -> dict[str, Any]:
    """For which pairing the weights of how many layers were trained; nothing if they cannot be read."""
    known = [check.weights for check in checks if check.weights is not None]
    if not known:
        return {}
    leaning = {name: sum(each.leaning == name for each in known) for name in ("own", "other", "neither")}
    middle = {name: float(f"{np.median([getattr(each, name) for each in known]):.3g}") for name in ("own", "other")}
    return {"weights": {"layers": len(known), "leaning": leaning, "median": middle, "permuted": permuted(known)}}


def angles_of(check: LayerCheck) -> list[Row]:
    """By which angle each pass of a layer differs from what is claimed, at every position: of the plane that differs most.

    `seen` and `claimed` are the angles of that plane in radians.
    """
    found: list[Row] = []
    for fit in check.fits:
        apart = None if fit.claim is None else differences(fit.rotation, fit.claim)
        if apart is None or not apart[0].size:
            continue
        ratio = np.abs(apart[0]) / apart[1]
        plane = int(ratio.max(0).argmax())
        seen = fit.rotation.seen
        rate = fit.claim.frequencies[plane] if fit.claim is not None and plane < len(fit.claim.frequencies) else 0.0
        found += [
            {
                "layer": check.layer,
                "part": fit.part,
                "position": float(place),
                "plane": plane,
                "apart": float(f"{np.abs(apart[0][n]).max():.3g}"),
                "allowed": float(f"{apart[1][n, plane]:.3g}"),
                "claimed": float(f"{place * rate:.6g}"),
                "seen": float(f"{place * rate + apart[0][n, plane]:.6g}"),
            }
            for n, place in enumerate(seen.positions)
        ]
    return found


def counts(rows: list[Row]) -> dict[str, Any]:
    """How many layers have each verdict, and what departs first."""
    verdicts = {name: sum(row["verdict"] == name for row in rows) for name in ("as claimed", "departs", "not decided")}
    first = next((row for row in rows if row["departures"]), None)
    return {
        "layers": len(rows),
        "verdicts": verdicts,
        "first": None if first is None else {"layer": first["layer"], **first["departures"][0]},
        "causes": sorted({each["said"] for row in rows for each in row["departures"]})[:20],
    }
