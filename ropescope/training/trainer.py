"""Training GPT-J on a multi-hop task: deterministic for a seed, safe to kill at any moment, and resumed bit for bit.

A run folder holds

    config.json              the recipe; a folder is never continued with another one
    checkpoint.safetensors   weights, optimiser and random state at one step, and with `keep_best` the best weights so far
    history.safetensors      what the watcher measured, up to that step at least
    model/                   the last weights, or with `keep_best` the best ones, as a folder that `transformers` opens
    last/                    with `keep_best`: the last weights, likewise
    snapshots/               with `snapshots`: such folders for every checkpoint
    summary.json             results, versions, hashes

Every file is replaced whole. Batches depend on the step alone, so a checkpoint needs no place in the data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .. import runs
from ..console import first_line
from ..models.gptj import GPTJ, save_gptj
from ..runs import Row
from ..tasks import Samples, split
from .probe import evaluate, last_logits, probe_of, probe_row
from .recipe import PRESETS, Recipe, recipe

__all__ = ["PRESETS", "Recipe", "check_folder", "evaluate", "probe_of", "recipe", "train", "train_step"]

CHECKPOINT = "checkpoint.safetensors"
OnStep = Callable[[int, float, Row | None], None]


@dataclass(frozen=True)
class Best:
    """The checkpoint of best validation accuracy so far: its step, how many answers were right, its weights."""

    step: int
    right: int
    weights: dict[str, Tensor]


def check_folder(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Raise ValueError, before anything is done, if this run can neither be started nor resumed in the folder."""
    _refuse_other_runs(folder, runs.keyed(recipe.settings(), __name__), resume)


def train(
    recipe: Recipe,
    folder: Path,
    resume: bool = False,
    snapshots: bool = False,
    on_step: OnStep | None = None,
    patience: float = 0.0,
) -> dict[str, Any]:
    """Train to the end and return the summary's results.

    resume     continue the run that the folder holds
    snapshots  store the weights of every checkpoint
    on_step    called with the step, its loss and, where the heads were measured, the row
    patience   seconds to wait for another process that holds the folder
    """
    config = runs.keyed(recipe.settings(), __name__)
    _refuse_other_runs(folder, config, resume)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    data = split(recipe.make_task(), recipe.samples, recipe.seed)
    model = recipe.make_model()
    optimiser = recipe.optimiser(model)
    # Only now, as the recipe may still ask for more sequences than the task has: then nothing is left behind.
    with runs.locked(folder, patience):
        _refuse_other_runs(folder, config, resume)  # again, as another may have come first
        runs.write_whole(folder / "config.json", json.dumps(config, indent=2) + "\n")
        return _train(recipe, folder, data, model, optimiser, snapshots, on_step)


def _train(
    recipe: Recipe,
    folder: Path,
    data: dict[str, Samples],
    model: GPTJ,
    optimiser: torch.optim.Optimizer,
    snapshots: bool,
    on_step: OnStep | None,
) -> dict[str, Any]:
    step, best, history = _resumed(recipe, folder, model, optimiser)
    probe = probe_of(data["validation"], recipe.probe)

    def look() -> Row:
        row = probe_row(model, probe)
        history.add(step, row)
        return row

    def store() -> None:
        # History first: rows past the checkpoint are dropped on resuming, missing ones could not be made again.
        history.write(folder / "history.safetensors")
        if snapshots:
            save_gptj(model, folder / "snapshots" / f"step-{step:06d}")
        runs.write_whole(folder / CHECKPOINT, _packed(step, model, optimiser, best))

    started, first = time.perf_counter(), step
    if step == 0:
        row = look()
        if on_step is not None:
            on_step(0, float(row["loss"]), row)
    while step < recipe.steps:
        rows = batch_rows(recipe, step)
        ids, answer = (torch.from_numpy(x[rows]) for x in (data["train"].tokens, data["train"].answer))
        loss = train_step(recipe, step, ids, answer, model, optimiser)
        step += 1
        watched, stored = (step % every == 0 or step == recipe.steps for every in (recipe.watch_every, recipe.checkpoint_every))
        if watched or stored:
            _require_numbers(model, step)
        seen = look() if watched else None
        if stored:
            if recipe.keep_best:
                best = _better(best, step, model, data["validation"])
            store()
        if on_step is not None:
            on_step(step, float(loss), seen)
    timing = {"steps_timed": step - first, "seconds": round(time.perf_counter() - started, 1)}
    return _finish(recipe, folder, data, model, best, timing)


def _resumed(
    recipe: Recipe, folder: Path, model: GPTJ, optimiser: torch.optim.Optimizer
) -> tuple[int, Best | None, runs.History]:
    """Step, best checkpoint and history of the folder's checkpoint, to which model and optimiser are put back."""
    if not (folder / CHECKPOINT).exists():
        return 0, None, runs.History()
    try:
        step, best = _restore(runs.read_arrays(folder / CHECKPOINT), model, optimiser, recipe.keep_best)
        return step, best, runs.History.read(folder / "history.safetensors", up_to=step)
    except (OSError, LookupError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder} holds a damaged checkpoint ({first_line(error)}): it is not used; "
            "copy the folder anew, or remove it to train from the beginning"
        ) from None


def _finish(
    recipe: Recipe, folder: Path, data: dict[str, Samples], model: GPTJ, best: Best | None, timing: dict[str, Any]
) -> dict[str, Any]:
    """Write the model and the summary; returns the summary's results."""

    def tested() -> dict[str, float]:
        return {f"{hops}-hop": float(value) for hops, value in enumerate(evaluate(model, data["test"]), start=1)}

    results: dict[str, Any] = {"test_accuracy": tested(), **timing}
    folders = ["model"]
    if best is not None:
        save_gptj(model, folder / "last")
        results["last_test_accuracy"] = results["test_accuracy"]
        model.load_state_dict(best.weights)
        results |= {
            "test_accuracy": tested(),
            "best_step": best.step,
            "best_validation_accuracy": best.right / len(data["validation"]),
        }
        folders.append("last")
    save_gptj(model, folder / "model")
    files = [f"{name}/{file}" for name in folders for file in ("config.json", "model.safetensors")]
    runs.write_summary(folder, "train", recipe.settings(), results, ["config.json", "history.safetensors", *files])
    return results


def _better(best: Best | None, step: int, model: GPTJ, validation: Samples) -> Best:
    """The best checkpoint, this step included; among equals the earliest."""
    right = int((last_logits(model, validation).argmax(-1).numpy() == validation.answer).sum())
    if best is not None and right <= best.right:
        return best
    return Best(step, right, {name: value.clone() for name, value in model.state_dict().items()})


def _refuse_other_runs(folder: Path, config: dict[str, Any], resume: bool) -> None:
    file = folder / "config.json"
    if file.exists():
        if not resume:
            raise ValueError(f"{folder} already holds a run: pass resume to continue it, or choose another folder")
        runs.refuse_other(file, config, "a run of another recipe")


def train_step(
    recipe: Recipe, step: int, ids: Tensor, answer: Tensor, model: nn.Module, optimiser: torch.optim.Optimizer
) -> Tensor:
    """One step on one batch; returns its loss. The model is called as our GPT-J is."""
    for group in optimiser.param_groups:
        group["lr"] = recipe.rate_at(step)
    logits = model(ids, last_only=True, positions=recipe.positions(ids.shape[1]))[:, 0]
    loss = F.cross_entropy(logits, answer)
    if not torch.isfinite(loss):
        raise ValueError(f"loss is {float(loss.detach())} at step {step}: lower the rate; the last checkpoint is whole")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimiser.step()
    return loss.detach()


def _require_numbers(model: GPTJ, step: int) -> None:
    """Before anything is kept: the loss of a step tells only what its weights were before."""
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise ValueError(
                f"weights are NaN or infinite after step {step}, first in {name}: lower the rate; the last checkpoint is whole"
            )


def batch_rows(recipe: Recipe, step: int) -> np.ndarray:
    """Rows of the training data for one step: in order, shuffled anew for each pass over them."""
    size = recipe.samples[0]
    numbers = np.arange(step * recipe.batch, (step + 1) * recipe.batch)
    rows = numbers % size
    for epoch in np.unique(numbers // size):
        if epoch > 0:
            here = numbers // size == epoch
            rows[here] = np.random.default_rng((recipe.seed, int(epoch))).permutation(size)[rows[here]]
    return rows


def _packed(step: int, model: GPTJ, optimiser: torch.optim.Optimizer, best: Best | None) -> bytes:
    """Everything that the rest of the run depends on, in one file's bytes."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
    tensors["random"] = torch.get_rng_state()
    tensors["step"] = torch.tensor(step)
    if best is not None:
        tensors |= {f"best.model.{name}": value for name, value in best.weights.items()}
        tensors |= {"best.step": torch.tensor(best.step), "best.right": torch.tensor(best.right)}
    return runs.packed_arrays({name: value.numpy() for name, value in tensors.items()})


def _restore(
    arrays: dict[str, np.ndarray], model: GPTJ, optimiser: torch.optim.Optimizer, keep_best: bool
) -> tuple[int, Best | None]:
    """Step and best checkpoint of `_packed`, after putting model, optimiser and random numbers back to that step."""
    tensors = {name: torch.tensor(value) for name, value in arrays.items()}
    model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, number, kind = name.split(".")
            state.setdefault(int(number), {})[kind] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random"])
    best = None
    if keep_best:
        weights = {name: tensors[f"best.model.{name}"] for name in model.state_dict()}
        best = Best(int(tensors["best.step"]), int(tensors["best.right"]), weights)
    return int(tensors["step"]), best
