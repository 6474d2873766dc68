"""Run a profile: scores of every head on prompts, their statistics, details of a few heads, data for the playground."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...measures.plane_scores import AT_ONCE
from ...models.adapter import Adapter, read_layers
from ...models.gptj import GPTJ
from ...models.load import load_model
from ...models.source import Source, open_source, parameter_hash, source_of
from ...models.stream import streams
from ...runs import HERE, Engine, cached_batches, claim
from ...tasks import prompts as makers
from ...tasks.prompts import Prompt, as_prompt
from .. import playground, study_named
from ..head_scores import TOLERANCE, Row, Scoring, dataset, device_of, measure_each, packed
from ..study import Outcome, Work
from . import Settings
from .head_details import examples, head_details
from .rows import FILE
from .statistics import statistics

if TYPE_CHECKING:
    import xarray as xr

HOLDS = "profile", "a profile of another model, prompts or settings"
"""What the run folder of a profile holds, and what one holds that is not to be mixed with it."""


Together = Callable[[Sequence[Prompt]], int]
"""How many of the next prompts are in one forward pass."""


@dataclass(frozen=True)
class Subject:
    """A model and the prompts to profile it on.

    model         gives heads
    about_model   source, family, sizes, hashes of weights
    prompts       all prompts
    about_prompts their kind, number and settings
    described     the same in one line
    short         a prompt for the playground, with its name and description
    """

    model: Adapter | GPTJ
    about_model: Mapping[str, Any]
    prompts: Sequence[Prompt]
    about_prompts: Mapping[str, Any]
    described: str
    short: tuple[Prompt, str, str]

    def config(self, scoring: Scoring) -> dict[str, Any]:
        """All that determines the scores."""
        return {"model": self.about_model, "prompts": self.about_prompts, **asdict(scoring)}


def run(settings: Settings, work: Work) -> Outcome:
    """The outcome of `ropescope profile`. Scores of finished prompts are stored in the run folder, to resume from."""
    scoring = Scoring(settings.tau, settings.planes, settings.sensitivity, seed=settings.seed, tolerance=settings.tolerance)
    if settings.memory is not None and work.engine.name != "here":
        raise ValueError("memory is for a model in one process: set engine to here")
    asked = settings.model, settings.dtype, settings.trust_remote_code
    loaded = load_model(*asked, device=settings.device, revision=settings.revision, memory=settings.memory)
    model = Adapter(loaded.model)
    named = ("count", "pairs", "lengths", "hops", "blocks", "chat", "seed")
    options = {name: getattr(settings, name) for name in named}
    prompts, about = makers.choose_prompts(loaded.tokenizer, settings.prompts, **options)
    makers.check_fits(prompts, loaded.context, loaded.vocabulary)
    few, its = prompts, about
    if settings.prompts == "binding":
        options |= {"count": 1, "pairs": min(settings.pairs, playground.PAIRS)}
        few, its = makers.choose_prompts(loaded.tokenizer, settings.prompts, **options)
    short = min(few, key=len), f"{its['kind']} prompt", makers.describe(its | {"count": 1})
    subject = Subject(model, loaded.about, prompts, about, makers.describe(about), short)
    source: Source | None = None
    if work.engine.name != "here":
        source = source_of(loaded.model, *asked, settings.device, settings.revision)
    together = batches_for(model, settings.batch)
    units = cached_rows(source or model, prompts, scoring, subject.config(scoring), work.folder, work.engine, together)
    if settings.memory is None:  # reading the weights once more would cost more than it tells
        work.tell(_cost_line(model, prompts, scoring))
    scores = _dataset(subject, list(work.progress(units, len(prompts), "prompts")), scoring.seed)
    return _outcome(subject, scores, scoring)


def profile(
    model: nn.Module | Adapter,
    prompts: Iterable[Prompt | Tensor | NDArray[np.int64] | Sequence[int]],
    *,
    tau: float = 1e-4,
    planes: bool = True,
    sensitivity: bool = True,
    permutations: int = 200,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    batch: int | None = None,
    out: str | Path | None = None,
    name: str | None = None,
) -> xr.Dataset:
    """Scores of every head of a model on every prompt.

    model         a causal model of `transformers`, an `Adapter` to it, or one of our GPT-J
    prompts       `Prompt`s (see `binding_prompts`), or sequences of at least four token ids, whose tokens move one by one but
                  for the first, on which heads rest, and the last, which is the query
    tau           temperature of the weighting of swaps
    planes        score every RoPE plane alone, too, which takes about twice as long
    sensitivity   try other temperatures, full permutations and swaps of single tokens, too
    permutations  how many random permutations to try
    seed          of the permutations
    tolerance     error that scores of many tokens and of planes may have (`score_error`, `plane_error`); 0 for none
    batch         how many prompts are in one forward pass, also of unequal lengths; 1 unless given, and as many as fit for a
                  model that `load_model` streams from disk
    out           a folder to write the run to, with data, figures and summary, for `ropescope report`
    name          what to call the model in the result

    The result is an `xarray.Dataset` with dimensions input, layer, head, plane (from 1 on, the fastest) and tau. The attribute
    `long_name` of each variable describes it. What was not measured is NaN, and so are scores of a layer whose window holds
    fewer than two blocks.

    Raises RefusedError if the model cannot be opened or its attention does not follow from `M`, and ValueError if there is no
    prompt, one is too short, or the folder holds something else.

    >>> import torch, ropescope as rs
    >>> model = rs.bundled("number")
    >>> scores = rs.profile(model, [torch.randint(120, (17,)) for _ in range(4)], sensitivity=False)
    >>> dict(scores.positional.sizes)
    {'input': 4, 'layer': 12, 'head': 1}
    >>> scores.symbolic.long_name
    'symbolic score over swaps of two blocks'
    """
    adapter = model if isinstance(model, Adapter | GPTJ) else Adapter(model)
    scoring = Scoring(tau, planes, sensitivity, permutations, seed, tolerance)
    asked = [as_prompt(prompt) for prompt in prompts]
    called = name or _name(model)
    together = batches_for(adapter, batch)
    if out is None:
        return dataset(_rows(adapter, asked, scoring, together), {"model": called})
    return _into_folder(_given(adapter, asked, called), scoring, together, Path(out))


def _into_folder(subject: Subject, scoring: Scoring, together: Together, out: Path) -> xr.Dataset:
    """The scores, after they, figures and summary were written to a folder."""
    from ..runner import run_in_folder  # noqa: PLC0415

    found = []

    def compute(work: Work) -> Outcome:
        claim(work.folder, subject.config(scoring), __name__, *HOLDS)
        # Nothing is resumed: a model in memory may have been changed in ways that its weights do not show.
        found.append(_dataset(subject, _rows(subject.model, subject.prompts, scoring, together), scoring.seed))
        return _outcome(subject, found[0], scoring)

    run_in_folder(study_named("profile"), compute, out)
    return found[0]


def _given(model: Adapter | GPTJ, prompts: Sequence[Prompt], name: str) -> Subject:
    """A model in memory and prompts that a caller made."""
    if not prompts:
        raise ValueError("prompts must hold at least one prompt")
    inner = model.model if isinstance(model, Adapter) else model
    config, first = getattr(inner, "config", None), next(inner.parameters())
    about_model = {
        "source": name,
        "family": str(getattr(config, "model_type", type(inner).__name__)),
        "parameters": sum(parameter.numel() for parameter in inner.parameters()),
        "dtype": str(first.dtype).removeprefix("torch."),
        "weights": {"parameters": parameter_hash(inner)},
    }
    ids = json.dumps([[prompt.ids.tolist(), prompt.blocks] for prompt in prompts]).encode()
    about = {"kind": "given", "count": len(prompts), "sha256": hashlib.sha256(ids).hexdigest()}
    lengths = sorted({len(prompt) for prompt in prompts})
    described = f"{len(prompts)} prompts of {lengths[0]}" + (f" to {lengths[-1]}" if len(lengths) > 1 else "") + " tokens"
    return Subject(model, about_model, prompts, about, described, (min(prompts, key=len), "given prompt", "1 prompt"))


def _dataset(subject: Subject, rows: Sequence[Row], seed: int) -> xr.Dataset:
    about = subject.about_model
    named = {"model": about["source"], "precision": about["dtype"], "prompts": subject.described, "seed": seed}
    return dataset(rows, named)


def _outcome(subject: Subject, scores: xr.Dataset, scoring: Scoring) -> Outcome:
    """What is written of a profile: scores, their statistics, details of a few heads, and a prompt for the playground."""
    data: dict[str, str | bytes] = {"profile.nc": packed(scores)}
    if heads := examples(scores):
        data[FILE] = json.dumps(head_details(subject.model, subject.prompts[0], heads, scoring.tau)) + "\n"
    prompt, called, described = subject.short
    if len(prompt) <= playground.LONGEST:
        origin = {**subject.about_model, "model": subject.about_model["source"], "prompts": described}
        played = playground.subject(subject.model, prompt, called, origin, scoring.tau)
        data["playground.json"] = json.dumps(playground.playground(played)) + "\n"
    return Outcome(subject.config(scoring), statistics(scores), data)


def _one(_: Sequence[Prompt]) -> int:
    return 1


def batches_for(model: Adapter | GPTJ, batch: int | None) -> Together:
    """How many prompts share a forward pass: `batch`, or as many as fit beside a streamed layer, or one."""
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    stream = streams.get(model.model) if isinstance(model, Adapter) else None
    if batch is not None or stream is None:
        return lambda _: batch or 1

    def fitting(prompts: Sequence[Prompt]) -> int:
        longest = list(accumulate(map(len, prompts), max))
        return sum(number * most <= stream.tokens(most) for number, most in enumerate(longest, start=1))

    return fitting


def _rows(model: Adapter | GPTJ, prompts: Sequence[Prompt], scoring: Scoring, together: Together) -> list[Row]:
    rows: list[Row] = []
    while len(rows) < len(prompts):
        rest = prompts[len(rows) :]
        rows += measure_each(model, rest[: max(1, together(rest))], scoring)
    return rows


def cached_rows(
    model: Adapter | GPTJ | Source,
    prompts: Sequence[Prompt],
    scoring: Scoring,
    config: Mapping[str, Any],
    folder: Path,
    engine: Engine = HERE,
    together: Together = _one,
) -> Iterator[Row]:
    """Measures batch by batch. Each prompt's are stored in `folder/inputs` as they come; what is there is not computed again.

    An engine of other processes takes the model's `Source`, as each of them opens its own.
    """
    claim(folder, config, __name__, *HOLDS)
    paths = [folder / "inputs" / f"{number:05d}.safetensors" for number in range(len(prompts))]
    return cached_batches(paths, measure_units, (model, scoring), prompts, together, engine)


def measure_units(shared: tuple[Adapter | GPTJ | Source, Scoring], prompts: Sequence[Prompt]) -> list[Row]:
    """All measures of the prompts of a batch, in whatever process."""
    model, scoring = shared
    return measure_each(_adapter(model) if isinstance(model, Source) else model, prompts, scoring)


@lru_cache(maxsize=1)
def _adapter(source: Source) -> Adapter:
    """A worker's own model, opened once."""
    return Adapter(open_source(source))


def _cost_line(model: Adapter, prompts: Sequence[Prompt], scoring: Scoring) -> str:
    cost = estimate(model, prompts, scoring)
    return (
        f"{len(prompts)} prompts, {sum(map(len, prompts)):,} tokens, {len(model.layers)} attention layers: about "
        f"{cost['seconds'] / 60:.1f} minutes, and {cost['bytes'] / 1e9:.1f} GB beside the model"
    )


def estimate(model: Adapter | GPTJ, prompts: Sequence[Prompt], scoring: Scoring) -> dict[str, float]:
    """Estimated seconds and bytes of a profile of these prompts, from a few tokens of the first."""
    tokens = min(64, len(prompts[0].ids))
    ids = torch.from_numpy(prompts[0].ids[:tokens])[None].to(device_of(model))
    largest: list[int] = []
    started = time.perf_counter()
    read_layers(model, ids, lambda read: largest.append(read.heads.queries.shape[1] * len(read.heads.rope.plane_frequencies)))
    seconds = (time.perf_counter() - started) / tokens * sum(len(prompt.ids) for prompt in prompts)
    blocks = max(len(prompt.blocks) for prompt in prompts)
    held = max(largest) * (blocks + 1) ** 2 if scoring.planes else max(largest) ** 0.5 * (blocks + 1) ** 2
    return {"seconds": 1.5 * seconds, "bytes": 8 * 6 * min(held, 4 * AT_ONCE)}


def _name(model: nn.Module | Adapter) -> str:
    inner = model.model if isinstance(model, Adapter) else model
    name = str(getattr(getattr(inner, "config", None), "name_or_path", "") or type(inner).__name__)
    return Path(name).name if Path(name).exists() else name
