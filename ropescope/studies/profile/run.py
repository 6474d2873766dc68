"""Run a profile: scores of every head on prompts, their statistics, details of a few heads, data for the playground."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ... import console
from ...measures.plane_scores import AT_ONCE
from ...measures.queries import AT_ONCE as QUERIES_AT_ONCE
from ...measures.sensitivity import LONGEST_SQUARE
from ...measures.view import MANY_TOKENS
from ...models.adapter import Adapter, read_layers
from ...models.gptj import GPTJ
from ...models.load import Loaded, load_model
from ...models.source import Source, open_source, parameter_hash, source_of
from ...models.stream import streams
from ...runs import HERE, Engine, cached_batches, claim
from ...tasks import choose as makers
from ...tasks.prompts import Prompt, check_fits, prompts_hash
from ...tasks.texts import TextBlocks
from .. import playground, study_named
from ..head_scores import TOLERANCE, Row, Scoring, dataset, device_of, measure_each, over_queries, packed, with_queries
from ..study import Outcome, Work
from . import Settings
from .answers import register, results_of
from .head_details import examples, head_details
from .inputs import given_prompts, open_model
from .rows import FILE

if TYPE_CHECKING:
    import xarray as xr

QUERIES = 32
"""Queries of each text, unless another number is given."""
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
    if settings.memory is not None and work.engine.name != "here":
        raise ValueError("memory is for a model in one process: set engine to here")
    asked = settings.model, settings.dtype, settings.trust_remote_code
    loaded = load_model(*asked, device=settings.device, revision=settings.revision, memory=settings.memory)
    named = ("count", "pairs", "lengths", "hops", "blocks", "chat", "seed", "move_first", "longest")
    options = {name: getattr(settings, name) for name in named}
    prompts, about = makers.choose_prompts(loaded.tokenizer, settings.prompts, **options)
    check_fits(prompts, loaded.context, loaded.vocabulary)
    queries = QUERIES if settings.queries is None and makers.is_text(settings.prompts) else settings.queries
    if queries is not None:
        prompts = [with_queries(prompt, queries) for prompt in prompts]
        about["queries"] = queries
    planes = planes_wanted(settings.planes, prompts)
    scoring = Scoring(settings.tau, planes, settings.sensitivity, seed=settings.seed, tolerance=settings.tolerance)
    few, its = prompts, about
    if settings.prompts == "binding":
        options |= {"count": 1, "pairs": min(settings.pairs, playground.PAIRS)}
        few, its = makers.choose_prompts(loaded.tokenizer, settings.prompts, **options)
    model = Adapter(loaded.model)
    short = min(few, key=len), f"{its['kind']} prompt", makers.describe(its | {"count": 1})
    subject = Subject(model, loaded.about, prompts, about, makers.describe(about), short)
    source: Source | None = None
    if work.engine.name != "here":
        source = source_of(loaded.model, *asked, settings.device, settings.revision)
    together = batches_for(model, settings.batch, scoring)
    units = cached_rows(source or model, prompts, scoring, subject.config(scoring), work.folder, work.engine, together)
    if settings.memory is None:  # reading the weights once more would cost more than it tells
        work.tell(_cost_line(model, prompts, scoring))
    scores = _dataset(subject, list(work.progress(units, len(prompts), "prompts")), scoring)
    return _outcome(subject, scores, scoring)


def profile(
    model: nn.Module | Adapter | Loaded | str | Path,
    prompts: Any,
    *,
    tokenizer: Any = None,
    queries: int | None = None,
    blocks: TextBlocks = "token",
    move_first: bool = False,
    longest: int | None = None,
    tau: float = 1e-4,
    planes: bool | None = None,
    sensitivity: bool = True,
    permutations: int = 200,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    batch: int | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Scores of every head of a model on every prompt.

    model         a model of `transformers`, an `Adapter`, one of our GPT-J, what `load_model` returns, or a path or hub id
    prompts       one or several: texts, what a tokenizer returns, sequences of token ids, or `Prompt`s
    tokenizer     for texts; that of the model by default, if `load_model` found one
    queries       score so many positions of each prompt, evenly spread, instead of the last alone; not planes and sensitivity
    blocks        what moves in a text (see `text_prompts`): "token", "line", "sentence", a separator, or strings
    move_first    move the first token of texts and token ids, too: by default it stays, because heads rest on it
    longest       cut texts to so many tokens
    tau           temperature of the weighting of swaps
    planes        score every RoPE plane alone, too, which takes about twice as long. Of 256 or more single tokens it takes ten
                  times as long, so there it is done only if True
    sensitivity   try other temperatures, full permutations and swaps of single tokens, too
    permutations  how many random permutations to try
    seed          of the permutations
    tolerance     error that scores of many tokens and of planes may have (`score_error`, `plane_error`); 0 for none
    batch         how many prompts share a forward pass; 1 by default, or as many as fit for a model streamed from disk
    out           a folder to write the run to, with data, figures and summary, for `ropescope report`
    name          what to call the model in the result
    progress      show a progress bar on a terminal

    The result is an `xarray.Dataset` with dimensions input, layer, head, plane (from 1 on, the fastest) and tau; with `queries`
    scores have the dimension query and the coordinate `position`. `long_name` of a variable describes it. What was not measured
    is NaN, also in layers whose window holds fewer than two blocks. See `top_heads`, `plot`, `save_run`.

    Raises RefusedError if attention does not follow from `M`, ValueError if a prompt or the folder does not fit.

    >>> import ropescope as rs
    >>> scores = rs.profile("weights/stories15M", rs.prose(2), queries=4, longest=64)
    >>> dict(scores.positional.sizes), scores.position[0].values.tolist()
    ({'input': 2, 'layer': 6, 'head': 6, 'query': 4}, [9, 27, 45, 63])
    >>> scores.symbolic.long_name
    'symbolic score over swaps of two blocks'
    """
    opened = open_model(model, tokenizer)
    asked = given_prompts(prompts, opened, blocks, queries, move_first, longest)
    scoring = Scoring(tau, planes_wanted(planes, asked), sensitivity, permutations, seed, tolerance)
    bar = console.progress if progress else console.silent
    return _profile(opened.model, asked, scoring, name or opened.name, batch, None if out is None else Path(out), bar)


def _profile(
    model: nn.Module | Adapter,
    asked: Sequence[Prompt],
    scoring: Scoring,
    name: str,
    batch: int | None,
    out: Path | None,
    progress: Callable[..., Any],
) -> xr.Dataset:
    """The dataset of a model in memory and checked prompts, written to a run folder if one is given."""
    adapter = model if isinstance(model, Adapter | GPTJ) else Adapter(model)

    together = batches_for(adapter, batch, scoring)

    def rows() -> list[Row]:
        return list(progress(rows_of(adapter, asked, scoring, together), len(asked), "prompts"))

    if out is None:
        return labelled(rows(), asked, _attributes(adapter, name, asked, scoring))
    from ..runner import run_in_folder  # noqa: PLC0415

    subject, found = _given(adapter, asked, name), []

    def compute(work: Work) -> Outcome:
        claim(work.folder, subject.config(scoring), __name__, *HOLDS)
        # Nothing is resumed: a model in memory may have been changed in ways that its weights do not show.
        found.append(_dataset(subject, rows(), scoring))
        return _outcome(subject, found[0], scoring)

    run_in_folder(study_named("profile"), compute, out)
    return found[0]


def labelled(rows: Sequence[Row], prompts: Sequence[Prompt], about: Mapping[str, Any]) -> xr.Dataset:
    """The dataset of all prompts, with the text of their tokens and whether an answer was asked for."""
    register()
    asked = any(prompt.answer is not None for prompt in prompts)
    texts = json.dumps([prompt.tokens for prompt in prompts], ensure_ascii=False)
    return dataset(rows, {**about, "asked": int(asked), "texts": texts})


def _attributes(model: Adapter | GPTJ, name: str, prompts: Sequence[Prompt], scoring: Scoring) -> dict[str, Any]:
    inner = model.model if isinstance(model, Adapter) else model
    family = str(getattr(getattr(inner, "config", None), "model_type", type(inner).__name__))
    precision = str(next(inner.parameters()).dtype).removeprefix("torch.")
    about = {"model": name, "family": family, "precision": precision, "prompts": described(prompts)}
    return about | {"seed": scoring.seed, "tau": scoring.tau}


def described(prompts: Sequence[Prompt]) -> str:
    """Prompts of a caller in one line of English."""
    lengths = sorted({len(prompt) for prompt in prompts})
    size = f"{lengths[0]}" + (f" to {lengths[-1]}" if len(lengths) > 1 else "")
    queries = max(len(prompt.queries) for prompt in prompts)
    count = f"{len(prompts)} prompt{'' if len(prompts) == 1 else 's'}"
    return f"{count} of {size} tokens" + (f", {queries} queries of each" if queries else "")


def _given(model: Adapter | GPTJ, prompts: Sequence[Prompt], name: str) -> Subject:
    """A model in memory and prompts that a caller made."""
    inner = model.model if isinstance(model, Adapter) else model
    config, first = getattr(inner, "config", None), next(inner.parameters())
    about_model = {
        "source": name,
        "family": str(getattr(config, "model_type", type(inner).__name__)),
        "parameters": sum(parameter.numel() for parameter in inner.parameters()),
        "dtype": str(first.dtype).removeprefix("torch."),
        "weights": {"parameters": parameter_hash(inner)},
    }
    about: dict[str, Any] = {"kind": "given", "count": len(prompts), "sha256": prompts_hash(prompts)}
    if queries := max(len(prompt.queries) for prompt in prompts):
        about["queries"] = queries
    short = min(prompts, key=len), "given prompt", "1 prompt"
    return Subject(model, about_model, prompts, about, described(prompts), short)


def _dataset(subject: Subject, rows: Sequence[Row], scoring: Scoring) -> xr.Dataset:
    about = subject.about_model
    named = {"model": about["source"], "precision": about["dtype"], "prompts": subject.described}
    return labelled(rows, subject.prompts, named | {"seed": scoring.seed, "tau": scoring.tau})


def _outcome(subject: Subject, scores: xr.Dataset, scoring: Scoring) -> Outcome:
    """What is written of a profile: scores, their statistics, details of a few heads, and a prompt for the playground."""
    data: dict[str, str | bytes] = {"profile.nc": packed(scores)}
    if heads := examples(over_queries(scores)):
        data[FILE] = json.dumps(head_details(subject.model, subject.prompts[0], heads, scoring.tau)) + "\n"
    prompt, called, described = subject.short
    prompt = playground.readable(prompt)
    if len(prompt) <= playground.LONGEST and scores.positional.notnull().any():
        origin = {**subject.about_model, "model": subject.about_model["source"], "prompts": described}
        played = playground.subject(subject.model, prompt, called, origin, scoring.tau)
        data["playground.json"] = json.dumps(playground.playground(played)) + "\n"
    return Outcome(subject.config(scoring), results_of(scores), data)


def _one(_: Sequence[Prompt]) -> int:
    return 1


def batches_for(model: Adapter | GPTJ, batch: int | None, scoring: Scoring) -> Together:
    """How many prompts share a forward pass: `batch`, or one; of a streamed model as many as fit, `batch` at most."""
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    if not isinstance(model, Adapter) or (stream := streams.get(model.model)) is None:
        return lambda _: batch or 1
    return lambda prompts: stream.fitting([(len(each), scoring_bytes(model, each, scoring)) for each in prompts[:batch]])


def rows_of(model: Adapter | GPTJ, prompts: Sequence[Prompt], scoring: Scoring, together: Together) -> Iterator[Row]:
    """Measures of all prompts, batch by batch."""
    done = 0
    while done < len(prompts):
        some = prompts[done : done + max(1, together(prompts[done:]))]
        yield from measure_each(model, some, scoring)
        done += len(some)


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


def planes_wanted(asked: bool | None, prompts: Sequence[Prompt]) -> bool:
    """Whether planes are scored: as asked for; by default unless many single tokens move in a prompt."""
    return not any(map(_many_tokens, prompts)) if asked is None else asked


def _many_tokens(prompt: Prompt) -> bool:
    """Whether so many single tokens move that their swaps are scored in tiles; each plane then takes as long as a head."""
    return len(prompt.blocks) >= MANY_TOKENS and all(stop - start == 1 for start, stop in prompt.blocks)


def _cost_line(model: Adapter, prompts: Sequence[Prompt], scoring: Scoring) -> str:
    cost = estimate(model, prompts, scoring)
    line = (
        f"{len(prompts)} prompts, {sum(map(len, prompts)):,} tokens, {len(model.layers)} attention layers: about "
        f"{cost['seconds'] / 60:.1f} minutes, and {cost['bytes'] / 1e9:.1f} GB beside the model"
    )
    if not any(map(_many_tokens, prompts)) or prompts[0].queries:
        return line
    ways = ("; planes of so many tokens take most of it", "; planes are left out, as they would take ten times as long")
    return line + ways[not scoring.planes]


def estimate(model: Adapter, prompts: Sequence[Prompt], scoring: Scoring) -> dict[str, float]:
    """Estimated seconds and bytes of a profile of these prompts, from a few tokens of the first."""
    tokens = min(64, len(prompts[0].ids))
    ids = torch.from_numpy(prompts[0].ids[:tokens])[None].to(device_of(model))
    started = time.perf_counter()
    read_layers(model, ids, lambda read: None)
    seconds = (time.perf_counter() - started) / tokens * sum(len(prompt.ids) for prompt in prompts)
    passes = 1.5 if not scoring.planes or prompts[0].queries else 13 if any(map(_many_tokens, prompts)) else 3
    return {"seconds": passes * seconds, "bytes": max(scoring_bytes(model, prompt, scoring) for prompt in prompts)}


def scoring_bytes(model: Adapter, prompt: Prompt, scoring: Scoring) -> int:
    """About how many bytes the scores of a layer take on a prompt, beside what the model itself computes."""
    heads, planes = max(model.heads), max(len(rope.plane_frequencies) for rope in model.ropes)
    blocks = (len(prompt.blocks) + 1) ** 2
    if prompt.queries:
        return 8 * 6 * min(heads * blocks * len(prompt.queries), QUERIES_AT_ONCE)
    at_once = AT_ONCE if _many_tokens(prompt) else 4 * AT_ONCE
    numbers = 6 * min(heads * (planes if scoring.planes else 1) * blocks, at_once)
    if scoring.sensitivity:  # `M` of all tokens, permuted
        numbers = max(numbers, 6 * heads * min(len(prompt), LONGEST_SQUARE) ** 2)
    return 8 * numbers
