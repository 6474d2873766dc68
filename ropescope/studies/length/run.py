"""Length generalisation: accuracy behind a front of extra targets (paper B, figure 5B), and how much short inputs predict.

A front adds keys that the model never has to attend to. The same sequences are measured behind fronts of four types:

    measured          the front itself: the whole sequence, as the model reads it
    keys and places   the front's tokens have the keys and values of a short input, as they pass through the model in pieces
                      of the target window's size; they stand where they really are
    keys alone        the same keys and values, standing where the target window stands
    sharpened         the front itself, but a query that sees n keys has its logits multiplied by log n / log 17

Both predictions use only what the model does within its training length. "Keys alone" assumes that only the number of wrong
keys matters: each has the logit that a wrong target has at short length, there are more of them, and the gap between right and
wrong logits is no longer enough. "Keys and places" adds what RoPE does to those logits at a distance. The rest of the
difference to "measured" is what a long context does to the tokens of the front: they too attend to a front, so their keys and
values are no longer those of short inputs.

    keys alone → keys and places   rotation at a distance: far keys lose or gain against near ones
    keys and places → measured     front tokens that have changed

"Sharpened" tests the explanation. If a head keeps its gap at every length and only the number of keys matters, logits that
grow with log n restore its accuracy; if the gap itself falls, as it must where places are told apart by rotation
(`theory.index_bound`), they cannot.

All differences of logits are read from attention weights: the difference of their logarithms is that of the logits.

The simplest prediction needs no model at all, only W, the mean weight on the P - 1 wrong targets of a short input. If every
key of the front weighs as much as one of them, E keys add W E / (P - 1) to a softmax that summed to one: at E = (P - 1) / W
the front takes half of the attention and halves all other weights, also those ahead on the path. It can be wrong in two ways.
Queries differ: the front takes all attention of those that are unsure already and little of the others, so a mean W predicts
too short a length. And in a head that tells places apart far keys may weigh more than near ones: then W predicts too long a
length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...models.gptj import GPTJ, require_vocabulary, sharpened
from ...models.gptj_steps import Front, read_front
from ...models.gptj_steps import run as run_model
from ...runs import keyed, plain, read_sealed, refuse_different, sealed, write_whole
from ...tasks import LetterTask, MultihopTask, Samples
from ...training.recipe import recipe
from ..study import Outcome, Work
from ..task_models import chosen_tasks, model_name, task_model
from . import Settings

MEASURED, PLACES, KEYS, SHARP = KINDS = ("measured", "keys and places", "keys alone", "sharpened")
LEVELS = (0.9, 0.5)
SMALLEST = torch.finfo(torch.float32).tiny
"""Weights below it count as this much, so logits farther apart than 87 count as 87 apart."""

Row = dict[str, Any]
"""One measurement: task, length, seed, kind; accuracy, per_hop; heads: what `node_weights` gives, per head."""


def run(settings: Settings, work: Work) -> Outcome:
    """Accuracy and attention over length for every task, measured and predicted."""
    names = chosen_tasks(settings.task, settings.model)
    tasks = {name: recipe(name).make_task() for name in names}
    for task in tasks.values():
        check(settings, task)
    found = {name: task_model(name, task, settings.model) for name, task in tasks.items()}
    models = {name: (model, tasks[name]) for name, (model, _, _) in found.items()}
    asked = asdict(settings)
    del asked["task"], asked["model"]
    weights = {name: digest for name, (_, digest, _) in found.items()}
    shown = dict.fromkeys(names, model_name(settings.model))
    config = {"task": settings.task, "models": shown, "weights": weights, **asked}
    config["settings"] = {name: digest for name, (_, _, digest) in found.items()}
    total = len(names) * len(settings.lengths) * settings.seeds * len(KINDS)
    rows = list(work.progress(generalise(models, settings, config, work.folder), total, "fronts"))
    results = {
        name: {"heads_are": head_names(model), **summary([row for row in rows if row["task"] == name], task)}
        for name, (model, task) in models.items()
    }
    return Outcome(config, results, written=["rows.json"])


def check(settings: Settings, task: MultihopTask) -> None:
    """Refuse settings that this task cannot do."""
    if settings.lengths[:1] != (task.length,):
        raise ValueError(
            f"lengths must begin with {task.length}, the tokens without a front, from which all others are predicted"
        )
    if settings.samples < task.hops:
        raise ValueError(f"samples must be at least {task.hops}, one for each hop count, not {settings.samples}")
    if settings.fillers == "one letter" and not isinstance(task, LetterTask):
        raise ValueError("fillers 'one letter' are for the letter task alone: use 'one token' for others")


def generalise(
    models: Mapping[str, tuple[GPTJ, MultihopTask]], settings: Settings, config: Mapping[str, Any], folder: Path
) -> Iterator[Row]:
    """One row after another, for every task, length, seed and type of front.

    The folder's `rows.json` holds all rows so far, with the `config` they belong to: those found there are not computed again.
    """
    for name, (model, task) in models.items():
        check(settings, task)
        require_vocabulary(model, name, task.vocab_size)
    rows = stored_rows(folder, config)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    for name, (model, task) in models.items():
        for length, seed, kind in product(settings.lengths, seeds, KINDS):
            at = {"task": name, "length": length, "seed": seed, "kind": kind}
            found = next((row for row in rows if at.items() <= row.items()), None)
            if found is None:
                found = at | measure(model, task, settings, length, seed, kind)
                rows.append(found)
                write_whole(folder / "rows.json", sealed({"config": keyed(config, __name__), "rows": rows}))
            yield found


def stored_rows(folder: Path, config: Mapping[str, Any]) -> list[Row]:
    """Rows that an earlier run of the same config left in the folder; a folder with anything else in it is refused."""
    path = folder / "rows.json"
    if not path.exists():
        if any(not entry.name.startswith(".") for entry in folder.glob("*")):
            raise ValueError(f"{folder} holds other files but no rows.json: choose another folder")
        return []
    then = "remove it to measure everything again, or choose another folder"
    stored = read_sealed(path, then)
    refuse_different(folder, stored.get("config"), keyed(config, __name__), "rows of other settings or weights")
    rows: list[Row] = stored.get("rows", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is damaged (it holds no rows): {then}")
    return rows


def groups(task: MultihopTask, settings: Settings, seed: int, extra: int) -> Iterator[Samples]:
    """The samples of one seed in groups behind one front, with the fillers asked for."""
    for group in task.behind_one_front(task.sample(settings.samples, seed, extra), settings.share):
        if extra and settings.fillers != "same":
            front = group.tokens[0, :extra]
            # The token nearest to the window is the same at every length, so a longer front only has more of the same.
            repeated = np.full_like(front, front[-1])
            if settings.fillers == "one letter" and isinstance(task, LetterTask):
                repeated += front % task.digits - front[-1] % task.digits
            group.tokens[:, :extra] = repeated
        yield group


def measure(model: GPTJ, task: MultihopTask, settings: Settings, length: int, seed: int, kind: str) -> Row:
    """Accuracy, and where heads attend from the nodes of paths, behind fronts of one type."""
    extra = length - task.length
    if kind == SHARP:
        model = sharpened(model, task.length)
    right, hops, nodes = [], [], []
    for group in groups(task, settings, seed, extra):
        ids = torch.from_numpy(group.tokens)
        front = front_of(kind, model, ids[0, :extra], task.targets) if extra else None
        logits, weights = answers(model, group, front, task.targets)
        right.append(logits.argmax(-1).numpy() == group.answer)
        hops.append(group.hops)
        nodes.append(weights)
    correct, of_hops = np.concatenate(right), np.concatenate(hops)
    heads = torch.cat(nodes).flatten(1, 2).double()
    of_heads = dict(zip(("margin", "front", "ahead", "itself", "targets"), heads.mean(0).T, strict=True))
    of_heads |= {"margin_low": heads[..., 0].quantile(0.1, 0), "front_high": heads[..., 1].quantile(0.9, 0)}
    return {
        "accuracy": float(correct.mean()),
        "per_hop": [float(correct[of_hops == h].mean()) for h in range(1, task.hops + 1)],
        "heads": {name: plain(values.numpy()) for name, values in of_heads.items()},
    }


def front_of(kind: str, model: GPTJ, ids: Int[Tensor, " T"], window: int) -> Front:
    """What later positions see of a front of this type."""
    if kind in (MEASURED, SHARP):
        return read_front(model, ids)
    at = torch.arange(len(ids))
    return read_front(model, ids, window, at if kind == PLACES else len(ids) + at % window)


def answers(
    model: GPTJ, group: Samples, front: Front | None, targets: int
) -> tuple[Float[Tensor, "B vocabulary"], Float[Tensor, "nodes L H five"]]:
    """Logits of the answer for a group behind its front, and `node_weights` of every layer."""
    extra = front.length if front else 0
    path = torch.from_numpy(group.path[:, : group.hops[0] + 1])
    nodes: list[Tensor] = []
    logits = run_model(
        model,
        torch.from_numpy(group.tokens[:, extra:]),
        front,
        on_weights=lambda _, weights: nodes.append(node_weights(weights, path, extra, targets)),
    )
    return logits, torch.stack(nodes, 1)


def node_weights(
    weights: Float[Tensor, "B H t T"], path: Int[Tensor, "B steps"], extra: int, targets: int
) -> Float[Tensor, "nodes H five"]:
    """Where heads attend from every node of the paths but their last, one row per node.

    The numbers are: margin, the largest logit of keys ahead on the path minus the largest of keys that are neither ahead nor
    the node itself; and the weight on the front, on keys ahead, on the node itself, and on wrong keys of the target window.
    """
    rows, found = torch.arange(len(path)), []
    for node in range(path.shape[1] - 1):
        weight = weights[rows, :, path[:, node] - extra]
        keys = path[:, None, node:].expand(-1, weight.shape[1], -1)
        on_path, wrong = weight.gather(-1, keys), weight.scatter(-1, keys, 0)
        itself, ahead = on_path[..., 0], on_path[..., 1:]
        best_right, best_wrong = (part.amax(-1).clamp(min=SMALLEST).log() for part in (ahead, wrong))
        on_front, on_targets = wrong[..., :extra].sum(-1), wrong[..., extra : extra + targets].sum(-1)
        found.append(torch.stack((best_right - best_wrong, on_front, ahead.sum(-1), itself, on_targets), -1))
    return torch.cat(found)


def summary(rows: Sequence[Row], task: MultihopTask) -> dict[str, Any]:
    """Curves, crossings, heads and the closed form of one task's rows; lists have one entry per length."""
    lengths = sorted({row["length"] for row in rows})
    classes = ["overall", *(f"{h}-hop" for h in range(1, task.hops + 1))]
    curves: dict[str, Any] = {}
    heads: dict[str, Any] = {}
    for kind in KINDS:
        at = [[row for row in rows if row["kind"] == kind and row["length"] == length] for length in lengths]
        # (length, seed, class): every length has every seed once all rows are there
        values = np.array([[[row["accuracy"], *row["per_hop"]] for row in same] for same in at])
        curves[kind] = {
            name: {"mean": plain(values[..., n].mean(1)), "sd": _spread(values[..., n])} for n, name in enumerate(classes)
        }
        shown = rows[0]["heads"] if kind == MEASURED else ("margin", "front")  # all of it is in the rows
        heads[kind] = {key: plain(np.array([[row["heads"][key] for row in same] for same in at]).mean(1)) for key in shown}
    return {
        "lengths": lengths,
        "curves": curves,
        "crossings": {str(level): {name: _crossings(lengths, curves, name, level) for name in classes} for level in LEVELS},
        "mean_distance": {
            kind: float(np.abs(np.subtract(curves[kind]["overall"]["mean"], curves[MEASURED]["overall"]["mean"])).mean())
            for kind in (PLACES, KEYS)
        },
        "heads": heads,
        "closed_form": closed_form(lengths, heads[MEASURED]["front"], heads[MEASURED]["targets"][0], task),
    }


def _spread(values: np.ndarray) -> list[float | None]:
    """Standard deviation over seeds (second axis); one seed has none."""
    return plain(values.std(1, ddof=1)) if values.shape[1] > 1 else [None] * len(values)


def _crossings(lengths: Sequence[int], curves: Mapping[str, Any], name: str, level: float) -> dict[str, float | None]:
    """Where each curve crosses the level, and how many times too long or short the predictions are."""
    at = {kind: crossing(lengths, curves[kind][name]["mean"], level) for kind in KINDS}
    ratios = {f"{kind} / {MEASURED}": _ratio(at[kind], at[MEASURED]) for kind in (PLACES, KEYS)}
    return at | ratios


def crossing(lengths: Sequence[int], values: Sequence[float], level: float) -> float | None:
    """The length at which a falling curve first comes down to the level, on straight lines over log length.

    None if it never does, or is below from the beginning.

    >>> from ropescope.studies.length.run import crossing
    >>> crossing([10, 1000], [1.0, 0.0], 0.5)
    100.0
    """
    below = [n for n, value in enumerate(values) if value <= level]
    if not below or values[0] < level:
        return None
    if below[0] == 0:
        return float(lengths[0])
    (start, end), (high, low) = lengths[below[0] - 1 : below[0] + 1], values[below[0] - 1 : below[0] + 1]
    return round(float(start * (end / start) ** ((high - level) / (high - low))), 3)


def _ratio(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else round(predicted / measured, 4)


def closed_form(
    lengths: Sequence[int], front: Sequence[Sequence[float]], wrong: Sequence[float], task: MultihopTask
) -> dict[str, Any]:
    """Per head: the length at which the front should take half of its attention, by short inputs alone, and where it does.

    `front` is what it takes, by length and head, and `wrong` the weight on wrong targets without a front. `off` is how many
    times too long or short the predicted lengths are (geometric mean over heads that have both), `spread` the factor by which
    heads differ from that.
    """
    predicted = [task.length + (task.targets - 1) / weight if weight > 0 else None for weight in wrong]
    measured = [crossing(lengths, [1 - share for share in of_head], 0.5) for of_head in zip(*front, strict=True)]
    ratios = [_ratio(p, m) for p, m in zip(predicted, measured, strict=True)]
    logs = [math.log(ratio) for ratio in ratios if ratio is not None]
    return {
        "wrong_target_weight": list(wrong),
        "half_predicted": [None if p is None else round(p, 1) for p in predicted],
        "half_measured": measured,
        "ratio": ratios,
        "off": round(math.exp(np.mean(logs)), 4) if logs else None,
        "spread": round(math.exp(np.std(logs)), 4) if logs else None,
    }


def head_names(model: GPTJ) -> list[str]:
    """Names in the order of the lists per head: L3, or L3H0 where layers have several."""
    layers, heads = model.config.layers, model.config.heads
    return [f"L{layer}" if heads == 1 else f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
