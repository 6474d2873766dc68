"""Calibrates on prose, ranks key heads, splits them, verifies the split on held-out text, and writes the pattern."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.adapter import Adapter, device_of
from ...models.adapter.cache import own_windows
from ...models.adapter.interventions import window_heads
from ...models.load import Loaded, load_model
from ...runs import plain
from ...tasks.retrieval import SAYS, Context, contexts_hash, retrieval_contexts
from ...tasks.texts import prose, text_ids
from ..study import Outcome, Work
from . import Settings
from .calibrate import copied, prose_statistics
from .compare import compared
from .memory import cache_sizes
from .rankings import PASS_KEYS, PROSE, RANKINGS, key_head_scores, needs, order, random_order, ranking_named, windowed_count
from .single import SingleHeads
from .trials import Measures, Trials, worst_loss

PASSAGES = 4
"""Passages of prose to calibrate on; the others are for tests."""
LONGEST = 512
"""Tokens of a calibration passage, at most."""
NEEDLES = (2, 3, 450)
"""Contexts, questions on each and tokens, of the prompts that retrieval heads are found on."""
BANDS = ((1, 128), (128, 256), (256, 512), (512, 1024), (1024, 1 << 30))
"""Positions of prose, by which its loss is shown."""
DESCENT = (0.9, 0.75, 0.5, 0.25, 0.1)
"""Shares that are tried for a tolerated loss, the largest first."""

Place = tuple[int, int]
"""Row of the layer among attention layers, and key head."""


@dataclass(frozen=True)
class Subject:
    """A model, what it is tried on, and what its heads are."""

    adapter: Adapter
    held_out: Trials
    prompts: Trials
    """The held-out prompts without prose, for rankings that are only compared."""
    chosen_on: Trials
    """Trials on the calibration passages, for a tolerated loss."""
    settings: Settings
    passages: list[Tensor]
    needles: list[Context]
    key_heads: int

    def changes(self, windowed: Sequence[Place]) -> Any:
        """The intervention that windows these key heads."""
        heads = [(self.adapter.layers[row], head) for row, head in windowed]
        return window_heads(heads, self.settings.sinks, self.settings.window)


def run(settings: Settings, work: Work) -> Outcome:
    """The outcome of `ropescope windows`."""
    ranking_named(settings.ranking)
    loaded = load_model(settings.model, settings.dtype, settings.trust_remote_code)
    subject, about = _subject(loaded, settings)
    changing = ("keep", "loss", "ranking", "compare", "alone", "shares", "draws", "cache_tokens", "gates")
    fixed = about | {name: value for name, value in asdict(settings).items() if name not in changing}
    work.resumed(fixed, __name__, "study of windows", "a study of another model, other windows or other prompts")
    names = list(RANKINGS) if settings.compare else [settings.ranking]
    found, cost = _calibrated(subject, names, work)
    candidates = _candidates(subject, settings)
    scores = {name: key_head_scores(RANKINGS[name], found, subject.key_heads) for name in names}
    if settings.gates:
        from .gates import trained_gates  # noqa: PLC0415

        gated = work.units([f"units/gates-{settings.gates}"], trained_gates, subject, [settings.gates], "gates")
        scores["gates"] = next(iter(gated))["gates"]
    measure = _Measured(subject, work)
    before = measure([])
    ranked = order(scores[settings.ranking], candidates)
    count, tried = _split(settings, ranked, subject, work)
    after = measure(ranked[:count])
    measured = _curves(settings, scores, candidates, measure)
    counts = [windowed_count(share, int(candidates.sum())) for share in settings.shares]
    curves = {
        name: [
            {"share": share, "count": number, **summary(found)}
            for share, number, found in zip(settings.shares, counts, row, strict=True)
        ]
        for name, row in measured.items()
    }
    every = [(int(a), int(b)) for a, b in np.argwhere(candidates)]
    alone = measure.alone(every) if settings.compare and settings.alone else {}
    results: dict[str, Any] = {
        "layers": list(subject.adapter.layers),
        "key_heads": subject.key_heads,
        "candidates": int(candidates.sum()),
        "windowed": [[subject.adapter.layers[row], head] for row, head in sorted(ranked[:count])],
        "scores": {name: plain(values) for name, values in scores.items()},
        "need": plain(needs(ranked, candidates.shape)),
        "before": summary(before),
        "after": summary(after),
        "random": [summary(measure(random_order(candidates, settings.seed + n)[:count])) for n in range(settings.draws)],
        "curves": curves,
        "calibration": cost,
        "tried": tried,
    }
    if settings.cache_tokens:
        results["cache"] = measure.cache(ranked[:count], settings.cache_tokens)
    if settings.compare:
        results |= compared(scores, candidates, alone, before, measured, settings.contexts, settings.seed)
    return Outcome(asdict(settings) | about, results, _files(results, settings, about))


def _subject(loaded: Loaded, settings: Settings) -> tuple[Subject, dict[str, Any]]:
    if loaded.tokenizer is None:
        raise ValueError("the model comes without a tokenizer, which prose and prompts need")
    tokens = settings.tokens if loaded.context is None else min(settings.tokens, loaded.context - 64)
    adapter = Adapter(loaded.model)
    counts = set(adapter.key_heads)
    if len(counts) > 1:
        raise ValueError(f"layers of the model have different numbers of key heads, {sorted(counts)}: no pattern can hold them")
    texts = prose()
    held, own = texts[PASSAGES:], texts[:PASSAGES]
    trials = []
    for some, number, seed in ((held, settings.contexts, settings.seed), (own, 1, settings.seed + 1000)):
        joined = [" ".join(some[n % len(some) :] + some[: n % len(some)]) for n in range(number)]
        contexts = {kind: retrieval_contexts(loaded.tokenizer, kind, joined, settings.questions, tokens, seed) for kind in SAYS}
        read = torch.from_numpy(text_ids(loaded.tokenizer, joined[0])[0][:tokens])
        trials.append(Trials(adapter, contexts, [read], settings.prefill == "full"))
    passages = [torch.from_numpy(text_ids(loaded.tokenizer, text)[0][: min(LONGEST, tokens)]) for text in own]
    number, questions, short = NEEDLES
    needles = retrieval_contexts(loaded.tokenizer, "passkey", own[:number], questions, min(short, tokens), settings.seed + 2000)
    about = {"model": loaded.about["source"], "about": loaded.about}
    about |= {f"{kind}_sha256": contexts_hash(contexts) for kind, contexts in trials[0].contexts.items()}
    subject = Subject(adapter, trials[0], trials[0].without_prose(), trials[1], settings, passages, needles, counts.pop())
    return subject, about


def _candidates(subject: Subject, settings: Settings) -> NDArray[np.bool_]:
    """Key heads that can be windowed (layer, key head): not those of layers whose own window is shorter than test contexts."""
    own = own_windows(subject.adapter)
    free = [own.get(layer, settings.tokens + 1) > settings.tokens for layer in subject.adapter.layers]
    if not any(free):
        raise ValueError("every layer of the model has a short window of its own: there is no key head to window")
    return np.repeat(np.array(free)[:, None], subject.key_heads, 1)


# Calibration


def _timed(subject: Subject, ids: Tensor, measure: Callable[[], Mapping[str, NDArray[Any]]]) -> Mapping[str, NDArray[Any]]:
    """What was measured, and processor seconds of that and of a plain pass over `ids`."""
    model: Any = subject.adapter.model
    batch = ids[None].to(device_of(model))
    with torch.inference_mode():
        start = time.process_time()
        model(input_ids=batch, use_cache=False)
        plain_pass = time.process_time() - start
    start = time.process_time()
    found = measure()
    return {**found, "seconds": np.array([time.process_time() - start, plain_pass]), "tokens": np.array(len(ids))}


def _calibrate(subject: Subject, unit: Tensor) -> Mapping[str, NDArray[Any]]:
    """Statistics of one passage of prose."""
    settings = subject.settings
    size = settings.queries, settings.sinks, settings.window
    return _timed(subject, unit, lambda: prose_statistics(subject.adapter, unit, *size))


def _needle(subject: Subject, unit: Context) -> Mapping[str, NDArray[Any]]:
    """Share of the tokens of pass keys that each head copies, over the questions on one context."""
    ids = torch.tensor(unit.ids + unit.questions[0].ids)
    questions = unit.questions
    return _timed(
        subject, ids, lambda: {"retrieval": np.mean([copied(subject.adapter, unit, question) for question in questions], 0)}
    )


def _calibrated(subject: Subject, names: Sequence[str], work: Work) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Means over passages or pass keys, whichever these rankings need, and what they cost."""
    found: dict[str, NDArray[Any]] = {}
    rows: list[Mapping[str, NDArray[Any]]] = []
    wanted = frozenset[str]().union(*(RANKINGS[name].texts for name in names))
    kinds: tuple[tuple[str, str, Any, Sequence[Any]], ...] = (
        (PROSE, "calibration", _calibrate, subject.passages),
        (PASS_KEYS, "needle", _needle, subject.needles),
    )
    for text, label, measure, units in kinds:
        if text in wanted:
            files = [f"units/{label}-{n}" for n in range(len(units))]
            of_kind = list(work.units(files, measure, subject, units, label))
            found |= {name: np.mean([row[name] for row in of_kind], 0) for name in of_kind[0]}
            rows += of_kind
    seconds = np.sum([row["seconds"] for row in rows], 0)
    return found, {
        "passages": len(rows),
        "tokens": int(sum(row["tokens"] for row in rows)),
        "seconds": round(float(seconds[0]), 2),
        "plain_seconds": round(float(seconds[1]), 2),
        "plain_passes": round(float(seconds[0] / max(seconds[1], 1e-9)) * len(rows), 1),
    }


# Trials


def _tried(subject: Subject, unit: tuple[str, Sequence[Place]]) -> Mapping[str, NDArray[Any]]:
    which, windowed = unit
    return getattr(subject, which).measure(subject.changes(windowed))  # type: ignore[no-any-return]


def _alone(shared: tuple[Subject, SingleHeads], unit: Place) -> Mapping[str, NDArray[Any]]:
    """Measures with one key head windowed."""
    subject, single = shared
    return single.measure(unit[0], subject.changes([unit]))


class _Measured:
    """Measures of windowed models on held-out trials; every set of heads is measured once."""

    def __init__(self, subject: Subject, work: Work) -> None:
        self.subject, self.work = subject, work

    def __call__(self, windowed: Sequence[Place]) -> Measures:
        return self.many([windowed])[0]

    def many(self, patterns: Sequence[Sequence[Place]], which: str = "held_out", label: str = "windowed") -> list[Measures]:
        names = [f"units/{which}-{_key(pattern)}" for pattern in patterns]
        return list(self.work.units(names, _tried, self.subject, [(which, pattern) for pattern in patterns], label))

    def cache(self, windowed: Sequence[Place], tokens: int) -> dict[str, float]:
        """Sizes of the cache with these key heads windowed."""
        name = f"units/cache-{tokens}-{_key(windowed)}"
        found = next(iter(self.work.units([name], _cache, self.subject, [(windowed, tokens)], "cache")))
        return {key: float(value) if "logit" in key else int(value) for key, value in found.items()}

    def alone(self, places: Sequence[Place]) -> dict[Place, Measures]:
        """Measures with each key head windowed alone; on the first context of each kind only if windows begin there."""
        names = [f"units/alone-{row}-{head}" for row, head in places]
        full, every = self.subject.prompts.full, self.subject.held_out.contexts
        some = {kind: contexts if full else contexts[:1] for kind, contexts in every.items()}
        shared = self.subject, SingleHeads(self.subject.adapter, some, full)
        return dict(zip(places, self.work.units(names, _alone, shared, places, "heads alone"), strict=True))


def _cache(subject: Subject, unit: tuple[Sequence[Place], int]) -> Mapping[str, NDArray[Any]]:
    windowed, tokens = unit
    found = cache_sizes(subject.adapter, subject.changes(windowed), _long(subject, tokens))
    return {name: np.array(value, dtype=np.float64) for name, value in found.items()}


def _key(windowed: Sequence[Place]) -> str:
    return hashlib.sha256(json.dumps(sorted(windowed)).encode()).hexdigest()[:16]


def _split(settings: Settings, ranked: list[Place], subject: Subject, work: Work) -> tuple[int, list[dict[str, float]]]:
    """How many key heads are windowed, and what was tried for a tolerated loss: on the calibration passages."""
    if settings.loss is None:
        return windowed_count(1 - settings.keep, len(ranked)), []
    measure, tried = _Measured(subject, work), []
    before = measure.many([[]], "chosen_on")[0]
    for share in DESCENT:
        count = windowed_count(share, len(ranked))
        loss = worst_loss(before, measure.many([ranked[:count]], "chosen_on")[0])
        tried.append({"share": share, "loss": round(loss, 4)})
        if loss <= settings.loss:
            return count, tried
    return 0, tried


def _curves(
    settings: Settings, scores: Mapping[str, NDArray[Any]], candidates: NDArray[np.bool_], measure: _Measured
) -> dict[str, list[Measures]]:
    """Measures of every ranking at every share windowed; of random choices all draws."""
    orders = {name: order(values, candidates) for name, values in scores.items()}
    if settings.compare:
        orders |= {f"random {n}": random_order(candidates, settings.seed + n) for n in range(settings.draws)}
    total = int(candidates.sum())
    counts = [windowed_count(share, total) for share in settings.shares]
    return {name: measure.many([ranked[:count] for count in counts], "prompts", name) for name, ranked in orders.items()}


def summary(found: Measures) -> dict[str, Any]:
    """Means of what was measured, and the loss of prose by position."""
    result: dict[str, Any] = {name: round(float(values.mean()), 5) for name, values in sorted(found.items())}
    losses = found.get("prose: loss")
    if losses is not None:
        tokens = losses.shape[1] + 1
        bands = [(start, min(stop, tokens)) for start, stop in BANDS if start < tokens - 1]
        result["prose by position"] = [
            {"from": start, "to": stop, "loss": round(float(losses[:, start - 1 : stop - 1].mean()), 5)}
            for start, stop in bands
        ]
    return result


# Files


def _long(subject: Subject, tokens: int) -> Tensor:
    """So many tokens of prose, repeated as often as needed; no more than the model reads."""
    config: Any = subject.adapter.model.config
    most = getattr(config.get_text_config(), "max_position_embeddings", None) or tokens
    ids = torch.cat([*subject.held_out.prose, *subject.passages])
    count = min(tokens, most)
    return ids.repeat(-(-count // len(ids)))[:count]


def _files(results: Mapping[str, Any], settings: Settings, about: Mapping[str, Any]) -> dict[str, str]:
    """The pattern as DuoAttention writes it and kvpress loads it, and the split for our own functions."""
    layers, width = results["layers"], results["key_heads"]
    rows = dict(zip(layers, results["need"], strict=True))
    table = [rows.get(layer, [1.0] * width) for layer in range(max(layers) + 1)]
    split = {
        "model": about["model"],
        "ranking": settings.ranking,
        "sinks": settings.sinks,
        "window": settings.window,
        "windowed": results["windowed"],
        "head_compression_ratio": len(results["windowed"]) / (len(table) * width),
    }
    pattern = {"sink_size": settings.sinks, "recent_size": settings.window, "model_name": about["model"]}
    return {
        "pattern/full_attention_heads.tsv": "".join("\t".join(f"{value:.6f}" for value in row) + "\n" for row in table),
        "pattern/config.json": json.dumps(pattern, indent=2) + "\n",
        "windows.json": json.dumps(split, indent=2) + "\n",
    }
