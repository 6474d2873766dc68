"""A playground to be held against Python, and hands to play with."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import real
import torch
from browser import opened

import ropescope as rs
from ropescope.heads import Heads
from ropescope.models.adapter import read_layers
from ropescope.report.playground import page
from ropescope.studies import playground as player
from ropescope.tasks import NumberTask
from ropescope.tasks.prompts import Prompt

SAME = 1e-9
"""Nearer than the 1e-6 that is promised: sums in another order are all that differs."""


class Played:
    """A model on a prompt: what the page is made of, and the model's own heads to hold it against."""

    def __init__(self, layers: list[tuple[int, Heads]], prompt: Prompt, name: str):
        self.heads, self.prompt, self.name = dict(layers), prompt, name
        self.data = player.playground(player.subject_of_heads(layers, prompt, name, {"model": name}))
        self.size = len(prompt.ids)

    def spans(self, mode: str, layer: int) -> list[tuple[int, int]]:
        window = self.heads[layer].window
        first = 0 if window is None else max(0, self.size - window)
        if mode == "any":
            return [(p, p + 1) for p in range(first, self.size - 1)]
        blocks = [block for block in self.prompt.blocks if block[0] >= first]
        return blocks if mode == "blocks" else [(p, p + 1) for start, stop in blocks for p in range(start, stop)]

    def order(self, mode: str, layer: int, row: list[int]) -> list[int]:
        """Which token stands where: blocks change places, all else stays in its order between them."""
        spans, order, at = self.spans(mode, layer), [], 0
        for (start, stop), unit in zip(spans, row, strict=True):
            order += [*range(at, start), *range(*spans[unit])]
            at = stop
        return order + list(range(at, self.size))

    def attention(self, layer: int, head: int, order: list[int]) -> list[float]:
        """Keys really change places, are rotated anew, and meet the query: no `M` here."""
        heads = self.heads[layer]
        moved = replace(heads, keys=heads.keys[:, :, order])
        return rs.attention_weights(moved, torch.tensor([self.size - 1]))[0, head, 0].tolist()

    def factors(self, layer: int, head: int, gate: dict | None = None):
        factors = rs.layer_factors(self.heads[layer]).item(0, head)
        if gate is None:
            return factors
        planes = len(factors.rope.frequencies)
        kept = range(gate["from"], min(gate["to"] + 1, planes))
        return factors.only_planes([*kept, *([planes] if gate["still"] else [])])

    def logits(self, layer: int, head: int, gate: dict | None = None) -> torch.Tensor:
        M, sinks = self.factors(layer, head, gate).matrix().clone(), self.heads[layer].sinks
        if sinks is not None:  # what never moves may hold them
            M[-1, -1] = torch.logaddexp(M[-1, -1], sinks[head])
        return M

    def check(self, state: dict) -> None:
        """All numbers of a state of the page against ours."""
        layer, head, mode, row, gate = (state[key] for key in ("layer", "head", "mode", "row", "gate"))
        spans, order = self.spans(mode, layer), self.order(mode, layer, row)
        assert state["order"] == order
        M = self.logits(layer, head, gate)
        if gate is None:
            now, before = (self.attention(layer, head, which) for which in (order, list(range(self.size))))
        else:
            real_M = self.factors(layer, head, gate).matrix()
            total = [real_M[which, torch.arange(self.size)] for which in (torch.tensor(order), torch.arange(self.size))]
            sinks = self.heads[layer].sinks
            more = torch.full((1,), -torch.inf) if sinks is None else sinks[head : head + 1]
            now, before = (torch.cat((x, more)).softmax(-1)[:-1].tolist() for x in total)
        assert state["attention"] == pytest.approx(now, abs=SAME)
        assert state["before"] == pytest.approx(before, abs=SAME)
        assert sum(now) <= 1 + SAME
        same(state["scores"], rs.swap_scores(M, state["tau"], spans)._asdict())
        same(state["shares"], rs.variance_shares(M, spans)._asdict())
        if row == sorted(row):
            assert state["thisOrder"] is None
        else:
            found = rs.permutation_scores(M, torch.tensor([row]), state["tau"], spans)
            same({key: state["thisOrder"][key] for key in ("positional", "symbolic")}, found._asdict())


def same(theirs: dict, ours: dict) -> None:
    assert theirs == pytest.approx({key: float(value) for key, value in ours.items()}, abs=1e-8)


def heads_of(model, prompt: Prompt) -> list[tuple[int, Heads]]:
    layers: list[tuple[int, Heads]] = []
    read_layers(model, torch.from_numpy(prompt.ids)[None], lambda read: layers.append((read.layer, read.heads)), queries=1)
    return [(layer, replace(heads, queries=heads.queries[:, :, -1:])) for layer, heads in layers]


@cache
def smollm() -> Played:
    loaded = rs.load_model(str(real.folder("smollm2-135m")))
    prompt = rs.binding_prompts(loaded.tokenizer, 1, player.PAIRS)[0]
    with torch.inference_mode():
        return Played(heads_of(rs.Adapter(loaded.model), prompt), prompt, "smollm2")


@cache
def number() -> Played:
    task = NumberTask()
    prompt, _ = player.task_prompt(task, task.sample(40, 0))
    return Played(heads_of(rs.bundled("number"), prompt), prompt, "number")


def odd_heads(seed: int = 0) -> Played:
    """What few models have, all together: soft-cap, ALiBi, sinks, a window, dimensions that never turn, shared keys, a layer
    without rotation; and blocks of unequal length with tokens between them.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, made = 15, []

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    options = [
        {"soft_cap": 3.0},
        {"alibi": torch.tensor([0.1, 0.4, 0.05, 0.2], dtype=torch.float64)},
        {"sinks": torch.tensor([1.0, 3.0, -1.0, 0.5], dtype=torch.float64)},
        {"window": 10},
        {},
        {"turns": 1.1 * torch.polar(torch.ones(tokens, 3).double(), random(tokens, 3))},
    ]
    for layer, more in enumerate(options):
        rope = rs.Rope(10, base=50.0, rotary_dim=0 if layer == 4 else 6, pairing="half" if layer % 2 else "interleaved")
        made.append((2 * layer, Heads(2 * random(1, 4, 1, 10), random(1, 2, tokens, 10), rope, scale=0.7, **more)))
    blocks = ((1, 3), (3, 6), (6, 7), (8, 12))
    return Played(made, Prompt(np.arange(tokens), blocks, tuple(f"t{n}" for n in range(tokens))), "odd")


@contextmanager
def playing(tmp_path: Path, *played: Played, **context):
    path = tmp_path / "playground.html"
    path.write_text(page({each.name: each.data for each in played}), encoding="utf-8")
    with opened(path, **context) as (tab, complaints):
        yield tab
        assert complaints == []


def state(tab, nth: int = 0) -> dict:
    return tab.locator(".playground").nth(nth).evaluate("async (one) => (await one.play(), one.playground.state())")


def choose(tab, layer: int, head: int, nth: int = 0) -> None:
    root = tab.locator(".playground").nth(nth)
    root.get_by_label("Layer", exact=True).select_option(str(layer))
    root.get_by_label("Head", exact=True).select_option(str(head))


def token(tab, place: int):
    return tab.locator(f".place[data-place='{place}'] .token")


def middle(tab, place: int) -> tuple[float, float]:
    return middle_of(token(tab, place))


def middle_of(part) -> tuple[float, float]:
    part.page.evaluate("Promise.all(document.getAnimations().map(one => one.finished.catch(() => null)))")  # nothing glides
    box = part.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(tab, from_place: int, to_place: int) -> None:
    (x, y), (to_x, to_y) = middle(tab, from_place), middle(tab, to_place)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move((x + to_x) / 2, (y + to_y) / 2, steps=4)
    tab.mouse.move(to_x, to_y, steps=4)
    tab.mouse.up()


def press(tab, name: str) -> None:
    tab.get_by_role("button", name=name, exact=True).first.click()


def move(tab, what: str) -> None:
    tab.get_by_role("radio", name=what, exact=True).first.check()
