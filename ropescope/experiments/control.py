"""What happens when RoPE planes or heads of a trained model are changed: the model's answers, its prose, its heads.

Every change is held against random ones of the same size: as many planes, in all layers the same, or as many heads. Only what
those do not do can be put down to the frequencies, or to the kind of the heads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..console import tell
from ..measures.intervals import mean_of_known
from ..measures.purity import head_kinds
from ..models.adapter import Adapter
from ..models.adapter.edits import Changes, LayerChange
from ..models.adapter.interventions import drop_planes, intervene, keep_planes, p_rope, remove_heads, stop_planes
from ..models.adapter.planes import heads_of, ropes_of
from ..models.gptj import GPTJ
from ..runs import claim, plain, read_sealed, sealed, write_whole
from ..studies.head_scores import Scoring, measure
from ..tasks import Samples
from ..tasks.prompts import Prompt
from ..training.trainer import probe_of
from ..training.watcher import Watcher

KINDS = ("positional", "symbolic", "mixed")
SHARES = (0.25, 0.5, 0.75, 1.0)
KEPT = (0.5, 0.25, 0.125, 0.0625)
PIECE = 512
"""Tokens of a text that are read at once."""
AT_ONCE = 16
"""Prompts of one length that are read at once."""

Head = tuple[int, int]
Table = NDArray[np.float64]


class TaskSubject:
    """Our own model on test sequences of its task."""

    def __init__(self, model: GPTJ, samples: Samples, probe: int = 256) -> None:
        self.model, self.samples, self.watcher = model, samples, Watcher(probe_of(samples, probe))

    @torch.inference_mode()
    def measures(self) -> dict[str, float]:
        """Accuracy over all inputs, and of each hop count."""
        logits = torch.cat(
            [self.model(part, last_only=True)[:, 0] for part in torch.from_numpy(self.samples.tokens).split(512)]
        )
        right = logits.argmax(-1).numpy() == self.samples.answer
        hops = self.samples.hops
        return {"accuracy": float(right.mean())} | {f"{h}-hop": float(right[hops == h].mean()) for h in np.unique(hops)}

    def scores(self) -> dict[str, Table]:
        """Of all heads, over the first inputs of each hop count."""
        row = self.watcher(self.model)
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


# What to change


@dataclass(frozen=True)
class Unit:
    """One change; `against` names the random ones that it is compared with, which have that name and a number."""

    name: str
    control: Changes
    against: str | None = None
    drawn: bool = False


def random_like(model: Adapter | GPTJ, control: Changes, seed: int) -> dict[int, LayerChange]:
    """The same gains and stops dealt at random to the planes that turn, alike in all layers that have equally many."""
    ropes, result = ropes_of(model), {}
    for layer, change in control.items():
        turning = len(ropes[layer].frequencies)
        dealt = np.random.default_rng([seed, turning]).permutation(turning)
        gains = change.gains
        if gains is not None:
            gains = (*(gains[n] for n in dealt), *gains[turning:])
        places = {int(old): new for new, old in enumerate(dealt)}
        result[layer] = replace(change, gains=gains, stopped=tuple(sorted(places[n] for n in change.stopped)))
    return result


def classes(model: Adapter | GPTJ, scores: Mapping[str, Table], share: float = 1.0) -> dict[str, list[Head]]:
    """Heads of each kind, the clearest cases first and no more of a kind than a share of all heads."""
    positional, symbolic = scores["positional"], scores["symbolic"]
    kind, lead = head_kinds(positional, symbolic), symbolic - positional
    clear = {"positional": -lead, "symbolic": lead, "mixed": -np.abs(lead)}
    numbers, most = list(ropes_of(model)), max(1, round(share * kind.size))
    found: dict[str, list[Head]] = {}
    for name in KINDS:
        where = sorted(zip(*np.nonzero(kind == name), strict=True), key=lambda at, name=name: -clear[name][at])  # type: ignore[misc]
        found[name] = [(numbers[layer], int(head)) for layer, head in where[:most]]
    return found


def random_heads(model: Adapter | GPTJ, heads: Sequence[Head], seed: int) -> list[Head]:
    """As many heads, in every layer as many as there: what layers do differs. Where layers have one head, any layers."""
    rng, numbers = np.random.default_rng(seed), heads_of(model)
    every = [(layer, head) for layer, number in numbers.items() for head in range(number)]
    if max(numbers.values()) == 1:
        return [every[n] for n in rng.permutation(len(every))[: len(heads)]]
    counts: dict[int, int] = defaultdict(int)
    for layer, _ in heads:
        counts[layer] += 1
    return [(layer, head) for layer, count in counts.items() for head in rng.permutation(numbers[layer])[:count].tolist()]


def plane_units(model: Adapter | GPTJ, named: Mapping[str, Changes], draws: int, seed: int) -> list[Unit]:
    """Changes of equally many planes, and random ones of the first's size, which all are compared with."""
    first = next(iter(named))
    against = f"random instead of {first}" if draws else None
    units = [Unit(name, change, against) for name, change in named.items()]
    return units + [Unit(f"{against} {n}", random_like(model, named[first], seed + n), drawn=True) for n in range(draws)]


def head_units(model: Adapter | GPTJ, heads: Mapping[str, Sequence[Head]], draws: int, seed: int) -> list[Unit]:
    """Kinds of heads out, each against as many random ones; against none if there are no others."""
    units = []
    for kind, own in heads.items():
        name, all_there_are = f"{kind} heads out", len(own) == sum(heads_of(model).values())
        against = None if all_there_are or not draws else f"random instead of {name}"
        if own:
            units.append(Unit(name, remove_heads(own), against))
        if own and against:
            drawn = (remove_heads(random_heads(model, own, seed + n)) for n in range(draws))
            units += [Unit(f"{against} {n}", others, drawn=True) for n, others in enumerate(drawn)]
    return units


def default_units(model: Adapter | GPTJ, draws: int, seed: int, kept: Sequence[float] = KEPT) -> list[Unit]:
    """Bands from fast to slow dropped, thirds dropped and stopped, slow shares stopped (p-RoPE), all but few planes dropped."""
    thirds = ("fast", "middle", "slow")
    groups: list[dict[str, Changes]] = [
        {f"band {n} of 8 dropped": drop_planes(model, f"{n}/8") for n in range(1, 9)},
        {f"{name} third dropped": drop_planes(model, name) for name in thirds},
        {f"{name} third stopped": stop_planes(model, name) for name in thirds},
    ]
    for share in (100 * part for part in kept):
        ends = ("fastest", "slowest")
        groups.append({f"only {end} {share:.3g}% kept": keep_planes(model, f"{end}{share}%,still") for end in ends})
    units = [unit for group in groups for unit in plane_units(model, group, draws, seed)]
    return units + [Unit(f"slowest {share:.0%} stopped", p_rope(model, share)) for share in SHARES]


# The study

Row = dict[str, Any]
"""Of one unit: name, against, drawn, how much was changed, measures, and scores per layer unless it was drawn."""
Plan = Callable[[Mapping[str, Table]], list[Unit]]
"""Scores of heads of the unchanged model to what to try."""


def control(subject: Subject, plan: Plan, config: dict[str, Any], folder: Path) -> Iterator[Row]:
    """The model as it is, then each change of the plan; each result is kept in `folder/units` and not computed again."""
    claim(folder, config, "study", "a study of another model or other settings")
    none = _kept(subject, Unit("nothing", {}), folder / "units" / "000.json")
    yield none
    scores = {name: np.array(none["heads"][name], dtype=float) for name in ("positional", "symbolic")}
    for number, unit in enumerate(plan(scores), start=1):
        yield _kept(subject, unit, folder / "units" / f"{number:03d}.json")


def _kept(subject: Subject, unit: Unit, path: Path) -> Row:
    if path.exists():
        try:
            row: Row = read_sealed(path, "it is not used but made again")
        except ValueError as error:
            tell(f"ropescope: {error}")
            row = {}
        if row.get("name") == unit.name and isinstance(row.get("measures"), dict):
            return row
    with intervene(subject.model, unit.control):
        row = {"name": unit.name, "against": unit.against, "drawn": unit.drawn, "changed": _changed(unit.control)}
        row["measures"] = {name: round(value, 6) for name, value in subject.measures().items()}
        if not unit.drawn:
            scores = subject.scores()
            row |= {name: [_number(x) for x in table.mean(1)] for name, table in scores.items()}
            if not unit.control:
                row["heads"] = {name: plain(table) for name, table in scores.items()}
    write_whole(path, sealed(row, indent=1))
    return row


def _number(x: np.float64) -> float | None:
    return round(float(x), 6) if np.isfinite(x) else None


def _changed(control: Changes) -> dict[str, Any]:
    """Which planes (from 1 on, of the first layer that has any changed) and how many heads."""
    planes = [
        [n + 1 for n in range(len(change.gains or ())) if change.gains and change.gains[n] != 1]
        + [n + 1 for n in change.stopped]
        for change in control.values()
    ]
    return {
        "planes": next((sorted(set(own)) for own in planes if own), []),
        "heads": [[layer, head] for layer, change in control.items() for head in change.out],
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Measures of every change beside mean, least and most of the random ones that it is compared with."""
    drawn: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        if row["drawn"]:
            drawn[row["name"].rsplit(" ", 1)[0]].append(row["measures"])
    result: dict[str, Any] = {}
    for row in rows:
        if row["drawn"]:
            continue
        entry = {key: row[key] for key in ("changed", "measures", "positional", "symbolic")}
        if others := drawn.get(row["against"] or ""):
            entry["against"], entry["draws"] = row["against"], len(others)
            entry["random"] = {
                name: {
                    "mean": round(float(np.mean([other[name] for other in others])), 6),
                    "least": min(other[name] for other in others),
                    "most": max(other[name] for other in others),
                }
                for name in row["measures"]
            }
        result[row["name"]] = entry
    return result


def kinds_found(model: Adapter | GPTJ, heads: Mapping[str, Any]) -> dict[str, int]:
    """How many heads of each kind the unchanged model has."""
    scores = {name: np.array(heads[name], dtype=float) for name in ("positional", "symbolic")}
    return {kind: len(own) for kind, own in classes(model, scores).items()}
