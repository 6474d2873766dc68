"""Watching the heads of a model while any code trains it.

A look is a forward pass over a few fixed prompts, of which only scores are stored. It leaves the model, its gradients and all
random numbers as they were, so training takes the same steps as without it; if a look fails, training continues. Every look
is added to a run folder that `ropescope report` and `ropescope dynamics` can open at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..console import printable
from ..inputs import whole
from ..measures.purity import POSITIONAL, SYMBOLIC, purity
from ..measures.scores import check_taus
from ..models.adapter import Adapter
from ..models.gptj import GPTJ
from ..models.identity import settings_of
from ..runs import HistoryFolder, Row
from ..tasks.prompts import Prompt, as_prompt
from .measuring import head_means, layers_of, watched
from .wrapped import copy_if_half, copy_weights, is_main_process, own_forward, refuse_shards, undisturbed, unwrapped

if TYPE_CHECKING:
    TrainerCallback: Any = object
else:
    from transformers import TrainerCallback

EVERY = 100
"""Steps from look to look. A look takes less time than a step of fine-tuning, so looks take less than a hundredth of it."""
AT_ONCE = 4096
"""Tokens of prompts that go through the model together."""
FEW_HEADS = 16
"""Up to this many heads, loggers get the scores of every head; above, those of chosen ones."""

Log = Callable[[dict[str, float], int], object]


class HeadWatcher(TrainerCallback):  # type: ignore[misc]
    """Measures a model's heads every so many steps of its training, and stores the scores in a run folder.

    model    a model that `ropescope.profile` reads; wrapped by DDP, `torch.compile` or PEFT if need be
    prompts  `Prompt`s (see `tasks.prompts`), or sequences of token ids, whose tokens move one by one but for the first
    out      the run folder; looks are added to it if it holds earlier ones of this run
    every    steps from look to look; the first and the last step are measured too
    layers   numbers of the layers to measure; all unless given
    heads    (layer, head) of those whose scores go to loggers one by one; all if they are few
    log      called with {name: number} and the step at each look
    writer   a `SummaryWriter` of TensorBoard, or any object with `add_scalar(name, number, step)`
    tau      temperature of the weighting of swaps
    name     of the model, for titles
    about    what training depends on (seed, rate, data, ...), stored with the looks; anything that JSON can hold

    With `transformers.Trainer`, call `rs.HeadWatcher(model, prompts, out="out/watch").attach(trainer)`: scores also go to all
    loggers that `report_to` names. In your own loop, call `step` after every step. Weights in half precision are measured
    through a copy in single precision, which takes its memory.

    Raises RefusedError if the model cannot be read, and ValueError if an argument is not allowed, prompts have tokens that
    the model does not know, or the folder holds another run. During training, anything that fails is a warning.

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
        _check(every, tau, log, writer)
        self.every, self.tau, self.log, self.writer = every, tau, log, writer
        self.model = unwrapped(model)
        self._last_step: int | None = None
        self._loss: tuple[int, float] | None = None
        self._trainer: Any = None
        self._ended = False
        self.is_main = is_main_process()
        if not self.is_main:  # the other processes train, and the first one looks
            return
        refuse_shards(model)
        self._copy = copy_if_half(self.model)
        with undisturbed(self.model), own_forward(self.model):
            seen = self.model if self._copy is None else self._copy
            self._adapter = seen if isinstance(seen, GPTJ) else Adapter(seen)
        sizes = layers_of(self._adapter)
        self.layers = list(sizes) if layers is None else _chosen(layers, list(sizes))
        self._batches = _batches(prompts, _vocabulary(self.model))
        self._heads, self._measures = max(sizes.values()), watched()
        self._logged = _logged(heads, self.layers, sizes)
        self.config = self._config(name, about, len(sizes))
        measured = None if self.layers == list(range(len(sizes))) else self.layers
        self._folder = HistoryFolder(Path(out), self.config, __name__, measured)

    def _config(self, name: str | None, about: Mapping[str, Any] | None, layers: int) -> dict[str, Any]:
        """The settings that looks in one folder share."""
        prompts_hash = hashlib.sha256(repr([(ids.tolist(), blocks) for ids, blocks in self._batches]).encode()).hexdigest()
        shapes = [(key, tuple(value.shape)) for key, value in self.model.named_parameters()]
        return {
            "command": "watch",
            "model": {
                "name": name or type(self.model).__name__,
                "shapes": hashlib.sha256(repr(shapes).encode()).hexdigest(),
                "settings": settings_of(self.model),
                "layers": layers,
                "heads": self._heads,
            },
            "prompts": {
                "count": sum(len(ids) for ids, _ in self._batches),
                "tokens": [ids.shape[1] for ids, _ in self._batches],
                "sha256": prompts_hash,
            },
            "layers": self.layers,
            "every": self.every,
            "tau": self.tau,
            **({} if about is None else {"training": _plain(about)}),
        }

    # In your own loop

    def step(self, step: int, **numbers: Any) -> Row | None:
        """The row of the look after this step; None if there is no look at this step.

        `numbers` are stored with the row: a `loss`, an `accuracy` (one or several), others. What takes time to compute may be
        a function, which is called only if there is a look, with the model in evaluation mode and without gradients.
        """
        if not self.is_main:
            return None
        if self._last_step is None:
            self._begin(step)
        self._last_step, self._numbers = step, numbers
        return self.look(step, **numbers) if step % self.every == 0 else None

    def close(self) -> None:
        """Look at the last step, if that has not been done, and write the summary."""
        if not self.is_main or self._ended:
            return
        self._ended = True
        if self._last_step is not None and self._last_step not in self._folder.history.steps:
            self.look(self._last_step, **self._numbers)
        with self._warn_on_error("the summary could not be written"):
            self._folder.finish(self.results())

    def __enter__(self) -> HeadWatcher:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # else training has not ended
            self.close()

    # Measuring

    def look(self, step: int, **numbers: Any) -> Row:
        """The row of a look now, whatever the step; of NaN, with a warning, if it fails. Empty except on the first process."""
        if not self.is_main:
            return {}
        row: Row = {name: np.full((len(self.layers), self._heads), np.nan, dtype=np.float32) for name in self._measures}
        with undisturbed(self.model), torch.inference_mode():
            with self._warn_on_error(f"measuring heads failed at step {step}"):
                row |= {name: value.astype(np.float32) for name, value in self.measure().items()}
            with self._warn_on_error(f"the numbers given at step {step} could not be computed"):
                self.model.eval()
                row |= {name: _as_row(name, value() if callable(value) else value) for name, value in numbers.items()}
        with self._warn_on_error(f"the look at step {step} could not be stored"):
            self._folder.add(step, row)
        with self._warn_on_error(f"the look at step {step} could not be logged"):
            self._log(step, row)
        return row

    def measure(self) -> dict[str, NDArray[np.float64]]:
        """Scores of the heads as they are now, (layer, head): means over the prompts on which a head has them."""
        with undisturbed(self.model), torch.inference_mode(), own_forward(self.model):
            if self._copy is not None:
                copy_weights(self.model, self._copy)
            device = next(self.model.parameters()).device
            batches = ((torch.from_numpy(ids).to(device), blocks) for ids, blocks in self._batches)
            return head_means(self._adapter, batches, self._measures, self.layers, self.tau)

    def results(self) -> dict[str, Any]:
        """Summary of the looks so far; empty except on the first process."""
        if not self.is_main:
            return {}
        steps, rows = self._folder.history.steps, self._folder.history.rows
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
        """Numbers of a row for loggers: counts of pure heads, means over all heads and over each layer, and chosen heads."""
        positional, symbolic = row["positional"], row["symbolic"]
        pure = purity(positional, symbolic)
        numbers = {
            "heads/pure_positional": float((pure == POSITIONAL).sum()),
            "heads/pure_symbolic": float((pure == SYMBOLIC).sum()),
            "heads/purity": _mean(np.abs(positional - symbolic)),
        }
        numbers |= {f"heads/{name}": _mean(row[name]) for name in self._measures}
        for place, layer in enumerate(self.layers):
            numbers |= {f"heads/L{layer}/{name}": _mean(row[name][place]) for name in ("positional", "symbolic")}
        for layer, head in self._logged:
            place = self.layers.index(layer)
            numbers |= {f"heads/L{layer}.H{head}/{name}": float(row[name][place, head]) for name in self._measures}
        return {name: value for name, value in numbers.items() if np.isfinite(value)}

    def _log(self, step: int, row: Row) -> None:
        numbers = self.scalars(row)
        if not np.isfinite(row["positional"]).any():
            return
        if self.log is not None:
            self.log(numbers, step)
        if self.writer is not None:
            for name, value in numbers.items():
                self.writer.add_scalar(name, value, step)
        if self._trainer is not None:
            _log_to_trainer(self._trainer, self, numbers)

    def _begin(self, step: int) -> None:
        """Training starts or resumes at a step: later looks are dropped. A run that has ended is not replaced."""
        steps = self._folder.history.steps
        if steps and step <= steps[0] and (self._folder.folder / "summary.json").exists():
            raise ValueError(
                f"{self._folder.folder} holds a run that has ended, and training starts anew: choose another folder for `out`"
            )
        with self._warn_on_error("looks of an earlier run could not be dropped"):
            self._folder.drop_after(step)

    @contextlib.contextmanager
    def _warn_on_error(self, what: str) -> Iterator[None]:
        """Turn any error inside into a warning of one sentence."""
        try:
            yield
            return
        except Exception as error:
            reason = printable(str(error)) or type(error).__name__
        warnings.warn(f"ropescope: {what} ({reason}); training continues", RuntimeWarning, stacklevel=4)

    # As a callback of `transformers.Trainer`

    def attach(self, trainer: Any) -> HeadWatcher:
        """This watcher, registered with a `transformers.Trainer` as a callback, with scores going to its loggers too.

        `trainer.add_callback(watcher)` records in the folder alone: a callback does not get the Trainer that it belongs to.
        """
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self._trainer = trainer
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Look at the model as it is before the first step, or the next one when resuming from a checkpoint."""
        trained = given.get("model")
        if trained is not None:
            refuse_shards(trained)
        if trained is not None and unwrapped(trained) is not self.model:
            raise ValueError("the Trainer trains another model than the watcher measures: give the watcher `trainer.model`")
        self.is_main = self.is_main and bool(state.is_world_process_zero)
        if not self.is_main:
            return
        self._ended, self._last_step = False, int(state.global_step)
        self._begin(self._last_step)
        if self._last_step not in self._folder.history.steps:
            self.look(self._last_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look if a look is due at this step."""
        step = int(state.global_step)
        if self.is_main and (step % self.every == 0 or step >= state.max_steps):
            self.look(step, **({"loss": self._loss[1]} if self._loss and self._loss[0] > step - self.every else {}))

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Store the mean loss that the Trainer logs with the look at this step, else with the next one."""
        loss = (logs or {}).get("loss")
        if not self.is_main or not isinstance(loss, int | float):
            return
        step, history = int(state.global_step), self._folder.history
        self._loss = (step, float(loss))
        if history.steps and history.steps[-1] == step:
            history.rows[-1]["loss"] = _as_row("loss", loss)
            with self._warn_on_error(f"the loss at step {step} could not be stored"):
                self._folder.add(step, history.rows[-1])

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the summary."""
        self._last_step = None  # it has been measured; by now the Trainer may have loaded the best weights
        self.close()


def _log_to_trainer(trainer: Any, watcher: HeadWatcher, numbers: dict[str, float]) -> None:
    """Send numbers to the loggers of a Trainer, but not to callbacks that print.

    Not by `trainer.log`, which would add them to the Trainer's own history and print them.
    """
    for callback in trainer.callback_handler.callbacks:
        if callback is not watcher and not type(callback).__name__.endswith(("PrinterCallback", "ProgressCallback")):
            callback.on_log(trainer.args, trainer.state, trainer.control, logs=dict(numbers), model=watcher.model)


def _mean(values: NDArray[Any]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _as_row(name: str, value: Any) -> NDArray[np.float32]:
    """A number of a row as an array; accuracies always have an axis."""
    plain = value.detach().float().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value, dtype=np.float32)
    if name in (*watched(), "step", "layer"):
        raise ValueError(f"{name} is measured, and cannot be given")
    if plain.ndim > 1 or (name != "accuracy" and plain.ndim):
        raise ValueError(
            f"{name} must be {'one or several numbers' if name == 'accuracy' else 'one number'}, not {plain.shape}"
        )
    return np.atleast_1d(plain) if name == "accuracy" else plain


# Arguments


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(about), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"about must hold what JSON can hold ({error})") from None
    return plain


def _check(every: object, tau: float, log: object, writer: object) -> None:
    if type(every) is not int or every < 1:
        raise ValueError(f"every must be a whole number of steps, at least 1, not {every!r}")
    check_taus(tau)
    if log is not None and not callable(log):
        raise ValueError(f"log must be a function of a dict and a step, not {log!r}")
    if writer is not None and not hasattr(writer, "add_scalar"):
        raise ValueError(f"writer must have add_scalar, as TensorBoard's SummaryWriter has, not {writer!r}")


def _vocabulary(model: nn.Module) -> int:
    if isinstance(model, GPTJ):
        return model.config.vocab_size
    return int(model.get_input_embeddings().weight.shape[0])  # type: ignore[operator]


def _chosen(layers: Sequence[int], own: Sequence[int]) -> list[int]:
    chosen = sorted(set(layers))
    if not chosen or any(layer not in own for layer in chosen):
        raise ValueError(f"layers must be some of the model's attention layers {_listed(own)}, not {list(layers)}")
    return chosen


def _logged(heads: Sequence[tuple[int, int]], layers: Sequence[int], count: Mapping[int, int]) -> list[tuple[int, int]]:
    for layer, head in heads:
        if layer not in layers or not 0 <= whole("a head", head) < count[layer]:
            raise ValueError(f"heads: layer {layer} has no head {head} that is watched; layers are {_listed(layers)}")
    every = [(layer, head) for layer in layers for head in range(count[layer])]
    return [*heads] or (every if len(every) <= FEW_HEADS else [])


def _listed(numbers: Sequence[int]) -> str:
    dense = list(numbers) == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2
    return f"{numbers[0]} to {numbers[-1]}" if dense else ", ".join(map(str, numbers))


def _batches(prompts: Iterable[Any], vocabulary: int) -> list[tuple[NDArray[np.int64], tuple[tuple[int, int], ...]]]:
    """Token ids (B, T) and blocks of prompts that have their blocks in the same places, at most `AT_ONCE` tokens each."""
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
