"""What a changed model is measured on: test sequences of its task, or prompts with answers and a text."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...measures.intervals import mean_of_known
from ...models.adapter import Adapter
from ...models.bundled import bundled_seed
from ...models.gptj import GPTJ
from ...models.load import load_model
from ...tasks import Samples, split
from ...tasks.passage import PASSAGE
from ...tasks.prompts import Prompt, binding_prompts, check_fits, prompts_hash
from ...tasks.texts import text_ids
from ...training.probe import last_logits, probe_of, probe_row
from ...training.recipe import recipe
from ..head_scores import Scoring, measure
from ..task_models import task_model
from . import Settings

PIECE = 512
"""Tokens of a text that are read at once."""
AT_ONCE = 16
"""Prompts of one length that are read at once."""

Table = NDArray[np.float64]


class TaskSubject:
    """Our own model on test sequences of its task."""

    def __init__(self, model: GPTJ, samples: Samples, probe: int = 256) -> None:
        self.model, self.samples, self.probe = model, samples, probe_of(samples, probe)

    def measures(self) -> dict[str, float]:
        """Accuracy over all inputs, and of each hop count."""
        right = last_logits(self.model, self.samples).argmax(-1).numpy() == self.samples.answer
        hops = self.samples.hops
        return {"accuracy": float(right.mean())} | {f"{h}-hop": float(right[hops == h].mean()) for h in np.unique(hops)}

    def scores(self) -> dict[str, Table]:
        """Of all heads, over the first inputs of each hop count."""
        row = probe_row(self.model, self.probe)
        return {name: row[name].astype(np.float64) for name in ("positional", "symbolic")}


class TextSubject:
    """A language model on prompts with answers, by name of their set, and on a text."""

    def __init__(
        self, model: Adapter, prompts: Mapping[str, Sequence[Prompt]], text: Sequence[Tensor], profiled: int = 8
    ) -> None:
        self.model, self.prompts, self.text, self.profiled = model, prompts, text, profiled

    @torch.inference_mode()
    def measures(self) -> dict[str, float]:
        """Of each set: right answers, right ones among those offered, mean log probability of the right one among those
        offered (chance is -log of their number); and the perplexity of the text.
        """
        found: dict[str, float] = {}
        for name, prompts in self.prompts.items():
            right, among, nats = [], [], []
            for prompt, logits in zip(*self._read(prompts), strict=True):
                choices = list(prompt.choices)
                offered = logits[choices].double()
                right.append(int(logits.argmax()) == prompt.answer)
                among.append(choices[int(offered.argmax())] == prompt.answer)
                nats.append(float(offered.log_softmax(-1)[choices.index(prompt.answer or 0)]))
            found |= {f"{name}: right": float(np.mean(right)), f"{name}: right of those offered": float(np.mean(among))}
            found[f"{name}: log probability"] = float(np.mean(nats))
        return found | {"perplexity": self._perplexity()}

    def _read(self, prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[Tensor]]:
        """Prompts, those of one length together, and the logits behind each."""
        by_length: dict[int, list[Prompt]] = defaultdict(list)
        for prompt in prompts:
            by_length[len(prompt)].append(prompt)
        order = [prompt for group in by_length.values() for prompt in group]
        logits: list[Tensor] = []
        for group in by_length.values():
            for start in range(0, len(group), AT_ONCE):
                ids = torch.from_numpy(np.stack([prompt.ids for prompt in group[start : start + AT_ONCE]]))
                logits += self._logits(ids, 1)[:, -1].unbind()
        return order, logits

    def _perplexity(self) -> float:
        nats, tokens = 0.0, 0
        for ids in self.text:
            logits = self._logits(ids[None], 0)[0, :-1].double()
            nats += float(torch.nn.functional.cross_entropy(logits, ids[1:].to(logits.device), reduction="sum"))
            tokens += len(ids) - 1
        return math.exp(min(nats / tokens, 700.0))

    def _logits(self, ids: Tensor, last: int) -> Tensor:
        network: Any = self.model.model
        logits: Tensor = network(input_ids=ids.to(network.device), use_cache=False, logits_to_keep=last).logits
        return logits

    def scores(self) -> dict[str, Table]:
        """Of all heads, over the first prompts of the first set."""
        prompts = next(iter(self.prompts.values()))[: self.profiled]
        rows = [measure(self.model, prompt, Scoring(planes=False, sensitivity=False)) for prompt in prompts]
        return {name: mean_of_known(np.array([row[name] for row in rows])) for name in ("positional", "symbolic")}


Subject = TaskSubject | TextSubject
"""A model and what is measured of it, as it is or changed."""


def text_pieces(ids: NDArray[np.int64], front: int = 0, piece: int = PIECE) -> list[Tensor]:
    """A text cut so that no piece is too long; each begins with what stands in front of the whole text."""
    if len(ids) - front < 2:
        raise ValueError("the text has fewer than two tokens: give some words")
    begin, rest = torch.from_numpy(ids[:front]), torch.from_numpy(ids[front:])
    parts = [part for part in rest.split(max(2, piece - front)) if len(part) > 1]
    return [torch.cat((begin, part)) for part in parts]


def task_subject(task: str, inputs: int) -> tuple[TaskSubject, dict[str, Any]]:
    """The bundled model of a task with so many test sequences, and what identifies both."""
    paper = recipe(task)
    network, weights, settings = task_model(task, paper.make_task(), None)
    samples = probe_of(split(paper.make_task(), paper.samples, bundled_seed(task))["test"], inputs)
    about = {"model": f"bundled {task} model", "weights": weights, "settings": settings, "inputs": len(samples)}
    return TaskSubject(network, samples), about


def text_subject(settings: Settings) -> tuple[TextSubject, dict[str, Any]]:
    """A language model with binding prompts and a text, and what identifies them."""
    words = PASSAGE if settings.text is None else _read(settings.text)
    loaded = load_model(settings.model, settings.dtype, settings.trust_remote_code)
    pieces = text_pieces(*text_ids(loaded.tokenizer, words))
    prompts = {
        f"{number} pairs": binding_prompts(loaded.tokenizer, settings.count, number, settings.seed) for number in settings.pairs
    }
    for some in prompts.values():
        check_fits(some, loaded.context, loaded.vocabulary)
    about = {"model": loaded.about["source"], "about": loaded.about, "pairs": list(settings.pairs), "prompts": settings.count}
    about["prompts_sha256"] = {name: prompts_hash(some) for name, some in prompts.items()}
    about |= {"text": hashlib.sha256(words.encode()).hexdigest(), "tokens": sum(map(len, pieces))}
    return TextSubject(Adapter(loaded.model), prompts, pieces), about


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"text {path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
