"""Watching the heads of anyone's model while anyone's code trains it.

A look is a forward pass over a few fixed prompts, with nothing kept of it but scores. It leaves the model, its gradients and
all random numbers as they were, so training takes the very steps it would have taken without it; and if a look fails, training
goes on. Every look is added to a run folder that `ropescope report` and `ropescope dynamics` open at any moment.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import json
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..measures.purity import POSITIONAL, SYMBOLIC, purity
from ..measures.registry import HEAD_AXES, Measure, compute, measures
from ..measures.scores import check_taus
from ..measures.view import LayerView
from ..models.adapter import Adapter, LayerRead, read_layers
from ..models.gptj import GPTJ
from ..runs import HistoryFolder, Row
from ..tasks.prompts import Prompt, as_prompt

if TYPE_CHECKING:
    TrainerCallback: Any = object
else:
    try:
        from transformers import TrainerCallback
    except ImportError:  # models of our own can be watched without it
        TrainerCallback = object

GROUPS = ("scores", "attention")
"""Groups of measures that a look computes: those that need the last query alone."""
EVERY = 100
"""Steps from look to look. A look takes less time than a step of fine-tuning, so looks take less than a hundredth of it."""
AT_ONCE = 4096
"""Tokens of prompts that go through the model together."""
FEW_HEADS = 16
"""Up to so many heads a logger is told the scores of each; of more, of chosen ones."""

Log = Callable[[dict[str, float], int], object]


def watched() -> dict[str, Measure]:
    """The measures of a look, by name."""
    return measures(*GROUPS, axes=HEAD_AXES)


class HeadWatcher(TrainerCallback):  # type: ignore[misc]
    """Looks at a model's heads every so many steps of its training.

    model    a model that `ropescope.profile` opens; wrapped by DDP, `torch.compile` or PEFT if need be
    prompts  `Prompt`s (see `tasks.prompts`), or sequences of token ids, whose tokens move one by one but for the first
    out      the run folder; looks are added to it if it holds earlier ones of this run
    every    steps from look to look; the first and the last step are looked at too
    layers   numbers of the layers to look at; all unless given
    heads    (layer, head) of those whose scores go to loggers one by one; all if they are few
    log      called with {name: number} and the step at each look
    writer   a `SummaryWriter` of TensorBoard, or whatever has `add_scalar(name, number, step)`
    tau      temperature of the weighting of swaps
    name     of the model, for titles
    about    what training depends on (seed, rate, data, ...), to be kept with the looks; what JSON can hold

    With `transformers.Trainer`, `trainer.add_callback(rs.HeadWatcher(model, prompts, out="out/watch"))` is all it takes: scores
    go to all that `report_to` names. In a loop of one's own, tell it of every step. Weights in half precision are looked at
    through a copy in single precision, which takes its memory.

    Raises RefusedError if the model cannot be opened, and ValueError if an argument is not allowed, prompts have tokens that
    the model does not know, or the folder holds another run. Once training goes on, what fails is a warning.

    >>> import tempfile, torch, ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> model, prompts = LlamaForCausalLM(LlamaConfig(**sizes)), [torch.randint(64, (12,)) for _ in range(4)]
    >>> with rs.HeadWatcher(model, prompts, out=tempfile.mkdtemp() + "/watch", every=5) as watcher:
    ...     for step in range(1, 11):  # train a step, then
    ...         row = watcher.step(step, loss=1 / step)
    >>> row["positional"].shape  # of the last look: layer, head
    (2, 4)
    """

    def __init__(
        self,
        model: nn.Module,
        prompts: Iterable[Prompt | Tensor | NDArray[np.int64] | Sequence[int]],
        out: str | Path = "out/watch",
        every: int = EVERY,
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[tuple[int, int]] = (),
        tau: float = 1e-4,
        log: Log | None = None,
        writer: Any = None,
        name: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if type(every) is not int or every < 1:
            raise ValueError(f"every must be a whole number of steps, at least 1, not {every!r}")
        check_taus(tau)
        if log is not None and not callable(log):
            raise ValueError(f"log must be a function of a dict and a step, not {log!r}")
        if writer is not None and not hasattr(writer, "add_scalar"):
            raise ValueError(f"writer must have add_scalar, as TensorBoard's SummaryWriter has, not {writer!r}")
        self.every, self.tau, self.log, self.writer = every, tau, log, writer
        self.model = _unwrapped(model)
        self._told: int | None = None
        self._loss: tuple[int, float] | None = None
        self._handler: Any = None
        self._ended = False
        self.is_main = _is_main()
        if not self.is_main:  # others train on, and leave looking to the first
            return
        _refuse_shards(model)
        self._copy = _copy_if_half(self.model)
        with _undisturbed(self.model), _by_itself(self.model):
            seen = self.model if self._copy is None else self._copy
            self._door = seen if isinstance(seen, GPTJ) else Adapter(seen)
        own, count = _layers(self._door)
        self.layers = own if layers is None else _chosen(layers, own)
        self._batches = _batches(prompts, _vocabulary(self.model))
        self._heads = max(count)
        self._logged = _logged(heads, self.layers, dict(zip(own, count, strict=True)))
        prompts_hash = hashlib.sha256(repr([(ids.tolist(), blocks) for ids, blocks in self._batches]).encode()).hexdigest()
        shapes = [(key, tuple(value.shape)) for key, value in self.model.named_parameters()]
        self.config = {
            "command": "watch",
            "model": {
                "name": name or type(self.model).__name__,
                "shapes": hashlib.sha256(repr(shapes).encode()).hexdigest(),
                "layers": len(own),
                "heads": self._heads,
            },
            "prompts": {
                "count": sum(len(ids) for ids, _ in self._batches),
                "tokens": [ids.shape[1] for ids, _ in self._batches],
                "sha256": prompts_hash,
            },
            "layers": self.layers,
            "every": every,
            "tau": tau,
            **({} if about is None else {"training": _plain(about)}),
        }
        self._kept = HistoryFolder(Path(out), self.config, None if self.layers == list(range(len(own))) else self.layers)

    # In a loop of one's own

    def step(self, step: int, **numbers: Any) -> Row | None:
        """Tell that a step was made, and look if it is time to; gives the row of a look, None without one.

        `numbers` go with the row: a `loss`, an `accuracy` (one or several), others. What takes time to find may be a function,
        which is called only if there is a look, with the model in evaluation mode and without gradients.
        """
        if not self.is_main:
            return None
        if self._told is None:
            self._begin(step)
        self._told, self._numbers = step, numbers
        return self.look(step, **numbers) if step % self.every == 0 else None

    def close(self) -> None:
        """Look at the last step, if that was not done, and write the summary."""
        if not self.is_main or self._ended:
            return
        self._ended = True
        if self._told is not None and self._told not in self._kept.history.steps:
            self.look(self._told, **self._numbers)
        with self._never_breaking("the summary could not be written"):
            self._kept.finish(self.results())

    def __enter__(self) -> HeadWatcher:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # else it has not come to its end
            self.close()

    # Looking

    def look(self, step: int, **numbers: Any) -> Row:
        """Look now, whatever the step. A look that fails is a row of NaN and a warning. Only the first process looks."""
        if not self.is_main:
            return {}
        row: Row = {name: np.full((len(self.layers), self._heads), np.nan, dtype=np.float32) for name in watched()}
        with _undisturbed(self.model), torch.inference_mode():
            with self._never_breaking(f"looking at heads failed at step {step}"):
                row |= {name: value.astype(np.float32) for name, value in self.measure().items()}
            with self._never_breaking(f"what goes with the look at step {step} could not be found"):
                self.model.eval()
                row |= {name: _as_row(name, value() if callable(value) else value) for name, value in numbers.items()}
        with self._never_breaking(f"the look at step {step} could not be kept"):
            self._kept.add(step, row)
        with self._never_breaking(f"the look at step {step} could not be logged"):
            self._tell(step, row)
        return row

    def measure(self) -> dict[str, NDArray[np.float64]]:
        """Scores of the heads as they are now, (layer, head): means over the prompts on which a head has them."""
        chosen = watched()
        sums = {name: np.zeros((len(self.layers), self._heads)) for name in chosen}
        counts = {name: np.zeros((len(self.layers), self._heads)) for name in chosen}
        places = {layer: place for place, layer in enumerate(self.layers)}
        with _undisturbed(self.model), torch.inference_mode(), _by_itself(self.model):
            if self._copy is not None:
                _copy_weights(self.model, self._copy)
            for ids, blocks in self._batches:

                def on_layer(read: LayerRead, blocks: Sequence[tuple[int, int]] = blocks) -> None:
                    place = places.get(read.layer)
                    if place is None:
                        return
                    for name, value in compute(
                        LayerView(read.heads, read.factors, blocks, tau=self.tau), chosen.values()
                    ).items():
                        found = value.double().cpu().numpy()
                        known = np.isfinite(found)
                        sums[name][place, : found.shape[1]] += np.where(known, found, 0).sum(0)
                        counts[name][place, : found.shape[1]] += known.sum(0)

                tokens = torch.from_numpy(ids).to(next(self.model.parameters()).device)
                read_layers(self._door, tokens, on_layer, queries=1)
        none = np.nan
        return {name: np.where(counts[name] > 0, sums[name] / np.maximum(counts[name], 1), none) for name in chosen}

    def results(self) -> dict[str, Any]:
        """What the looks so far say, in short; nothing but on the first process."""
        if not self.is_main:
            return {}
        steps, rows = self._kept.history.steps, self._kept.history.rows
        seen = [row for row in rows if np.isfinite(row["positional"]).any()]
        pure = purity(seen[-1]["positional"], seen[-1]["symbolic"]) if seen else np.zeros(0)
        return {
            "looks": len(rows),
            "failed_looks": len(rows) - len(seen),
            "last_step": steps[-1] if steps else None,
            "heads": int(np.isfinite(seen[-1]["positional"]).sum()) if seen else 0,
            "pure_positional": int((pure == POSITIONAL).sum()),
            "pure_symbolic": int((pure == SYMBOLIC).sum()),
        }

    def scalars(self, row: Row) -> dict[str, float]:
        """What loggers are told of a row: counts of pure heads, means over all heads and of each layer, and chosen heads."""
        positional, symbolic = row["positional"], row["symbolic"]
        pure = purity(positional, symbolic)
        told = {
            "heads/pure_positional": float((pure == POSITIONAL).sum()),
            "heads/pure_symbolic": float((pure == SYMBOLIC).sum()),
            "heads/purity": _mean(np.abs(positional - symbolic)),
        }
        told |= {f"heads/{name}": _mean(row[name]) for name in watched()}
        for place, layer in enumerate(self.layers):
            told |= {f"heads/L{layer}/{name}": _mean(row[name][place]) for name in ("positional", "symbolic")}
        for layer, head in self._logged:
            place = self.layers.index(layer)
            told |= {f"heads/L{layer}.H{head}/{name}": float(row[name][place, head]) for name in watched()}
        return {name: value for name, value in told.items() if np.isfinite(value)}

    def _tell(self, step: int, row: Row) -> None:
        told = self.scalars(row)
        if not np.isfinite(row["positional"]).any():
            return
        if self.log is not None:
            self.log(told, step)
        if self.writer is not None:
            for name, value in told.items():
                self.writer.add_scalar(name, value, step)
        if self._handler is not None:
            self._handler(told)

    def _begin(self, step: int) -> None:
        """Training goes on from a step. What was seen later belongs to a way that was left; what has ended is not replaced."""
        steps = self._kept.history.steps
        if steps and step <= steps[0] and (self._kept.folder / "summary.json").exists():
            raise ValueError(
                f"{self._kept.folder} holds a run that has ended, and training begins anew: choose another folder for `out`"
            )
        with self._never_breaking("looks of an earlier run could not be dropped"):
            self._kept.drop_after(step)

    @contextlib.contextmanager
    def _never_breaking(self, what: str) -> Iterator[None]:
        """Whatever goes wrong inside is told in one sentence, and training goes on."""
        try:
            yield
            return
        except Exception as error:
            told = " ".join(str(error).split()) or type(error).__name__
        warnings.warn(f"ropescope: {what} ({told}); training goes on", RuntimeWarning, stacklevel=4)

    # As a callback of `transformers.Trainer`

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Look at the model as it is before the first step, or goes on from a checkpoint."""
        trained = given.get("model")
        if trained is not None:
            _refuse_shards(trained)
        if trained is not None and _unwrapped(trained) is not self.model:
            raise ValueError("the Trainer trains another model than the watcher looks at: make it with `trainer.model`")
        self.is_main = self.is_main and bool(state.is_world_process_zero)
        if not self.is_main:
            return
        self._ended, self._told = False, int(state.global_step)
        self._begin(self._told)
        self._handler = _loggers(self, args, state, control)
        if self._told not in self._kept.history.steps:
            self.look(self._told)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look if it is time to."""
        step = int(state.global_step)
        if self.is_main and (step % self.every == 0 or step >= state.max_steps):
            self.look(step, **({"loss": self._loss[1]} if self._loss and self._loss[0] > step - self.every else {}))

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """The Trainer tells the mean loss since it last did: it goes with the look at this step, else with the next one."""
        loss = (logs or {}).get("loss")
        if not self.is_main or not isinstance(loss, int | float):
            return
        step, history = int(state.global_step), self._kept.history
        self._loss = (step, float(loss))
        if history.steps and history.steps[-1] == step:
            history.rows[-1]["loss"] = _as_row("loss", loss)
            with self._never_breaking(f"the loss at step {step} could not be kept"):
                self._kept.add(step, history.rows[-1])

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the summary."""
        self._told = None  # the last step was looked at; by now the Trainer may have put back the best weights
        self.close()


def _loggers(watcher: HeadWatcher, args: Any, state: Any, control: Any) -> Callable[[dict[str, float]], None] | None:
    """What tells the Trainer's loggers.

    A callback is not given the Trainer it belongs to, and `logs` reach it only after the loggers have had them. But whoever
    calls it is the handler of all callbacks: that is where `Trainer.log` sends its numbers too. Those who print are left out.
    """
    frame = inspect.currentframe()
    handler: Any = None
    while frame is not None:
        handler = frame.f_locals.get("self")
        if handler is not watcher and isinstance(getattr(handler, "callbacks", None), list) and hasattr(handler, "call_event"):
            break
        frame = frame.f_back
    else:
        return None

    def tell(numbers: dict[str, float]) -> None:
        for callback in handler.callbacks:
            if callback is not watcher and not type(callback).__name__.endswith(("PrinterCallback", "ProgressCallback")):
                callback.on_log(args, state, control, logs=dict(numbers), model=watcher.model)

    return tell


def _mean(values: NDArray[Any]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _as_row(name: str, value: Any) -> NDArray[np.float32]:
    """A number of a row; accuracies are always several."""
    plain = value.detach().float().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value, dtype=np.float32)
    if name in (*watched(), "step", "layer"):
        raise ValueError(f"{name} is measured, and cannot be given")
    if plain.ndim > 1 or (name != "accuracy" and plain.ndim):
        raise ValueError(
            f"{name} must be {'one or several numbers' if name == 'accuracy' else 'one number'}, not {plain.shape}"
        )
    return np.atleast_1d(plain) if name == "accuracy" else plain


# Models as others wrap them


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, inside of what spreads it over machines, compiles it or adapts it."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        return _unwrapped(model.module)
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return _unwrapped(inner)
    if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
        return _unwrapped(model.get_base_model())  # type: ignore[operator]
    return model


def _refuse_shards(model: nn.Module) -> None:
    """A ValueError if the weights of a model are in pieces on several machines."""
    by = "FSDP" if any("FullyShardedDataParallel" in kind.__name__ for kind in type(model).__mro__) else ""
    for parameter in model.parameters():
        if hasattr(parameter, "ds_id"):
            by = "DeepSpeed"
        elif "DTensor" in (type(parameter).__name__, type(parameter.data).__name__):
            by = "FSDP"
    if by:
        raise ValueError(f"the model is sharded by {by}: no process holds whole layers to look at")


def _is_main() -> bool:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def _copy_if_half(model: nn.Module) -> nn.Module | None:
    """A copy in single precision of a model in half precision: attention in half precision is too coarse to score."""
    kinds = {parameter.dtype for parameter in model.parameters()}
    if not kinds & {torch.float16, torch.bfloat16}:
        return None
    if odd := sorted(str(kind).removeprefix("torch.") for kind in kinds if not kind.is_floating_point):
        raise ValueError(f"the model has weights of {odd[0]}, quantized: it cannot be watched")
    with _by_itself(model):
        gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        try:
            for parameter in model.parameters():
                parameter.grad = None  # need not be copied
            copied = copy.deepcopy(model)
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
    return copied.float().requires_grad_(False).eval()


def _copy_weights(model: nn.Module, into: nn.Module) -> None:
    theirs = into.state_dict()
    for name, value in model.state_dict().items():
        theirs[name].copy_(value)


@contextlib.contextmanager
def _by_itself(model: nn.Module) -> Iterator[None]:
    """During it, calling the model calls its own code: neither in the half precision of mixed training, nor compiled."""
    own = vars(model)
    before: dict[str, Any] = {
        name: own.pop(name) for name in ("forward", "_original_forward", "_compiled_call_impl") if name in own
    }
    if "forward" in before and "_original_forward" not in before:  # somebody else's change
        own["forward"] = before["forward"]
    try:
        yield
    finally:
        own.update(before)


@contextlib.contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """After it, each part of the model is in training mode or not as before, and all random numbers go on as if nothing was."""
    modes = [(module, module.training) for module in model.modules()]
    plain, legacy = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)
        for module, mode in modes:
            module.training = mode


# What is asked for


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(about), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"about must hold what JSON can hold ({error})") from None
    return plain


def _layers(door: GPTJ | Adapter) -> tuple[list[int], list[int]]:
    """Numbers of the layers, and how many heads each has."""
    if isinstance(door, Adapter):
        return list(door.layers), list(door.heads)
    return list(range(door.config.layers)), [door.config.heads] * door.config.layers


def _vocabulary(model: nn.Module) -> int:
    if isinstance(model, GPTJ):
        return model.config.vocab_size
    return int(model.get_input_embeddings().weight.shape[0])  # type: ignore[operator]


def _chosen(layers: Sequence[int], own: Sequence[int]) -> list[int]:
    chosen = sorted(set(layers))
    if not chosen or any(layer not in own for layer in chosen):
        raise ValueError(f"layers must be some of the model's attention layers {_said(own)}, not {list(layers)}")
    return chosen


def _logged(heads: Sequence[tuple[int, int]], layers: Sequence[int], count: Mapping[int, int]) -> list[tuple[int, int]]:
    for layer, head in heads:
        if layer not in layers or not 0 <= head < count[layer]:
            raise ValueError(f"heads: layer {layer} has no head {head} that is watched; layers are {_said(layers)}")
    every = [(layer, head) for layer in layers for head in range(count[layer])]
    return [*heads] or (every if len(every) <= FEW_HEADS else [])


def _said(numbers: Sequence[int]) -> str:
    dense = list(numbers) == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2
    return f"{numbers[0]} to {numbers[-1]}" if dense else ", ".join(map(str, numbers))


def _batches(prompts: Iterable[Any], vocabulary: int) -> list[tuple[NDArray[np.int64], tuple[tuple[int, int], ...]]]:
    """Prompts that have their blocks in the same places go together, not too many: token ids (B, T) and blocks."""
    batches: dict[tuple[int, tuple[tuple[int, int], ...]], list[NDArray[np.int64]]] = {}
    for prompt in map(as_prompt, prompts):
        if len(prompt.ids) and not 0 <= prompt.ids.min() <= prompt.ids.max() < vocabulary:
            raise ValueError(f"prompts hold token ids beyond the model's vocabulary of {vocabulary:,}: use its own tokenizer")
        if len(prompt.blocks) < 2:
            raise ValueError(f"a prompt has {len(prompt.blocks)} blocks that may change places: at least 2 are needed")
        batches.setdefault((len(prompt.ids), tuple(prompt.blocks)), []).append(prompt.ids)
    if not batches:
        raise ValueError("prompts must hold at least one prompt")
    found = []
    for (tokens, blocks), ids in batches.items():
        size = max(1, AT_ONCE // tokens)
        found += [(np.stack(ids[start : start + size]), blocks) for start in range(0, len(ids), size)]
    return found
