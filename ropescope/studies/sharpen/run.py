"""Profiles a model on short prose, sharpens heads by kind, and measures the loss on long passages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...measures.intervals import LEAST_INPUTS, mean_interval, mean_of_known
from ...models.adapter import Adapter
from ...models.adapter.interventions import combine, intervene, p_rope, sharpen_heads
from ...models.load import Loaded, load_model
from ...runs import plain
from ...tasks.prompts import Prompt
from ...tasks.texts import prose, text_ids, text_prompts
from ..head_scores import Scoring, measure, with_queries
from ..study import Outcome, Work
from ..text_losses import text_losses
from . import Settings
from .choices import Choice, Table, can_rebase, choices, heads_by_kind, most_positional, rebased
from .names import BASE, FEW, NONE, SYMBOLIC, with_base

LONGEST = 256
"""Tokens of a text that is profiled, at most; fewer if the model was trained on shorter inputs."""
QUERIES = 16
"""Queries of each text that is profiled."""


@dataclass(frozen=True)
class Subject:
    """A model and what it reads.

    start     keys from which logits grow
    passages  token ids
    """

    adapter: Adapter
    start: int
    passages: Sequence[Tensor]


def run(settings: Settings, work: Work) -> Outcome:
    """The outcome of `ropescope sharpen`."""
    loaded = load_model(settings.model, settings.dtype, settings.trust_remote_code)
    trained = trained_length(settings, loaded)
    start = settings.start or trained
    passages, text = _passages(settings, loaded.tokenizer)
    about = {"model": loaded.about["source"], "about": loaded.about, "trained": trained, "start": start, "text": text}
    fixed = {**about, "tokens": settings.tokens, "passages": len(passages), "dtype": settings.dtype}
    work.resumed(fixed, __name__, "study of sharpened heads", "a study of another model, text or length")
    subject = Subject(Adapter(loaded.model), start, passages)
    positional, symbolic = _profiled(subject, loaded.tokenizer, min(LONGEST, trained), work)
    layers = list(subject.adapter.layers)
    kinds = heads_by_kind(layers, positional, symbolic)
    larger = can_rebase(subject.adapter)
    if not larger:
        work.tell("a larger base is not tried: the model's rotation is scaled, or has several bases")
    few = most_positional(kinds, layers, symbolic - positional)
    tried = choices(kinds, few, settings.tokens / trained, settings.draws, settings.seed, larger)
    names = [f"units/{choice.key}" for choice in tried]
    losses = [found["losses"] for found in work.units(names, _losses, subject, tried, "choices")]
    results: dict[str, Any] = {
        "layers": layers,
        "positional": plain(positional),
        "symbolic": plain(symbolic),
        "kinds": {kind: [list(head) for head in own] for kind, own in kinds.items()},
        "bands": [list(band) for band in bands(settings.tokens, trained)],
        **summary(tried, losses, trained),
    }
    return Outcome(asdict(settings) | about | {"passages": len(passages)}, results)


def trained_length(settings: Settings, loaded: Loaded) -> int:
    """Tokens of the inputs of training; ValueError if it is not known or passages are not longer."""
    trained = settings.trained if settings.trained is not None else loaded.context
    if trained is None:
        raise ValueError("the model's configuration has no context: give trained, the tokens of the inputs of training")
    if settings.tokens <= trained:
        raise ValueError(f"tokens must be above {trained}, the trained length, not {settings.tokens}")
    return trained


def _passages(settings: Settings, tokenizer: Any) -> tuple[list[Tensor], str]:
    """Passages that do not overlap, each with what stands in front of every text, and the hash of the text."""
    words = " ".join(prose()) if settings.text is None else _read(settings.text)
    ids, front = text_ids(tokenizer, words)
    size = settings.tokens - front
    count = (len(ids) - front) // size
    if not count:
        raise ValueError(
            f"the text has {len(ids)} tokens, too few for a passage of {settings.tokens}: give a longer one as text"
        )
    count = min(count, settings.passages or count)
    parts = torch.from_numpy(ids[front : front + count * size]).split(size)
    return [torch.cat((torch.from_numpy(ids[:front]), part)) for part in parts], hashlib.sha256(words.encode()).hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"text {path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None


def _profiled(subject: Subject, tokenizer: Any, longest: int, work: Work) -> tuple[Table, Table]:
    """Positional and symbolic scores of every head (layer, head), mean over queries and texts."""
    prompts = [with_queries(prompt, QUERIES) for prompt in text_prompts(tokenizer, prose(), "token", longest=longest)]
    names = [f"units/profile-{number}" for number in range(len(prompts))]
    rows = list(work.units(names, _scores, subject, prompts, "profile"))
    return mean_of_known(np.stack([row["positional"] for row in rows])), mean_of_known(
        np.stack([row["symbolic"] for row in rows])
    )


def _scores(subject: Subject, unit: Prompt) -> Mapping[str, NDArray[Any]]:
    """Scores of every head on one text, mean over queries."""
    row = measure(subject.adapter, unit, Scoring(planes=False, sensitivity=False))
    return {name: mean_of_known(np.moveaxis(row[name], -1, 0)) for name in ("positional", "symbolic")}


def _losses(subject: Subject, unit: Choice) -> Mapping[str, NDArray[Any]]:
    """The loss of every token of every passage but the first (passage, token)."""
    adapter = subject.adapter
    changes = combine(sharpen_heads(unit.heads, subject.start), p_rope(adapter, unit.stopped))
    with rebased(adapter, unit.base), intervene(adapter, changes):
        return {"losses": np.stack([text_losses(adapter.model, ids) for ids in subject.passages])}


# What the losses say


def bands(tokens: int, trained: int) -> list[tuple[int, int]]:
    """Ranges of the number of keys that a query sees, first and last, each as wide as the trained length."""
    return [(first + 1, min(first + trained, tokens - 1)) for first in range(0, tokens - 1, trained)]


def summary(tried: Sequence[Choice], losses: Sequence[Table], trained: int) -> dict[str, Any]:
    """Losses by passage and band of every choice, and gains: by how much it lowers the loss past the trained length.

    What sharpening gains is measured with the same base.
    """
    ranges = bands(losses[0].shape[1] + 1, trained)
    past = {choice.name: found[:, trained:].mean(1) for choice, found in zip(tried, losses, strict=True)}
    gains = {choice.name: past[choice.without] - past[choice.name] for choice in tried}
    entries = {
        choice.name: {
            "heads": len(choice.heads),
            "drawn": choice.drawn,
            "loss": _rounded(np.stack([found[:, first - 1 : last].mean(1) for first, last in ranges])),
            "past": _rounded(past[choice.name]),
            "gain": spread(gains[choice.name]),
        }
        for choice, found in zip(tried, losses, strict=True)
    }
    return {"choices": entries, "random": _against_random(tried, gains)}


def _against_random(tried: Sequence[Choice], gains: Mapping[str, Table]) -> dict[str, Any]:
    """Gains of random choices, with the model's own base and with a larger one, beside those of as many heads of a kind."""
    found = {}
    for without, named in ((NONE, {SYMBOLIC, FEW}), (BASE, {with_base(SYMBOLIC), with_base(FEW)})):
        drawn = [gains[choice.name] for choice in tried if choice.drawn and choice.without == without]
        if drawn:
            means = np.array([own.mean() for own in drawn])
            beside = {
                choice.name: {
                    "as_good": int((means >= gains[choice.name].mean()).sum()),
                    "as_bad": int((means <= gains[choice.name].mean()).sum()),
                    "lead": spread(gains[choice.name] - np.mean(drawn, 0)),
                }
                for choice in tried
                if choice.name in named
            }
            found[without] = {"gains": _rounded(means), "beside": beside}
    return found


def spread(values: Table) -> dict[str, Any]:
    """Values of passages, their mean, and its interval: None where there are too few passages for one."""
    interval = mean_interval(values) if len(values) >= LEAST_INPUTS else None
    low, high = (None, None) if interval is None else (round(float(interval.low), 5), round(float(interval.high), 5))
    return {"by_passage": _rounded(values), "mean": round(float(values.mean()), 5), "low": low, "high": high}


def _rounded(values: Table) -> Any:
    return np.round(values, 5).tolist()
