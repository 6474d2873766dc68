"""Three hand-made heads, one of each kind, and the heads of GPT-J before and after training, measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ...logits import counterfactual_logits, layer_logits
from ...measures.intervals import LEAST_INPUTS, mean_interval
from ...measures.scores import swap_scores
from ...measures.shares import entropy, exclusion, variance_shares
from ...models.bundled import bundled
from ...models.gptj import GPTJ, GPTJConfig
from ...rope import Rope
from ...tasks import LetterTask, MultihopTask, NumberTask
from ..study import Outcome, Work
from . import Settings
from .tables import SHOWN

TOKENS, ALPHABET, SHARPNESS = 17, 8, 12.0


@dataclass(frozen=True)
class HeadRow:
    """Measures of one head, means over inputs; scores with their interval."""

    group: str
    head: str
    positional: float
    positional_low: float
    positional_high: float
    symbolic: float
    symbolic_low: float
    symbolic_high: float
    symbol_share: float
    position_share: float
    binding_share: float
    entropy: float
    exclusion_slack: float


def run(settings: Settings, work: Work) -> Outcome:
    """Measures of every head."""
    scored = demo(settings.inputs, settings.tau, settings.seed)
    rows = [asdict(row) for row in work.progress(scored, 39, "heads")]
    results = {row["head"]: {key: row[key] for key in SHOWN} for row in rows}
    return Outcome(asdict(settings), results, {"heads.json": json.dumps(rows, indent=1) + "\n"})


def demo(inputs: int, tau: float, seed: int) -> Iterator[HeadRow]:
    """A row per head: three hand-made ones, the twelve of an untrained GPT-J, and those of the two bundled models."""
    if inputs < LEAST_INPUTS:
        raise ValueError(f"inputs must be at least {LEAST_INPUTS}, not {inputs}: fewer give no confidence interval")
    generator = torch.Generator().manual_seed(seed)
    letters = torch.randint(ALPHABET, (inputs, TOKENS), generator=generator)
    back = torch.randint(1, TOKENS - 1, (inputs,), generator=generator)
    for name, M in hand_made(letters, back).items():
        yield _measure("hand-made", name, M, tau)
    torch.manual_seed(seed)
    number, letter = NumberTask(), LetterTask()
    models: dict[str, tuple[GPTJ, MultihopTask]] = {
        "untrained": (GPTJ(GPTJConfig(vocab_size=number.vocab_size)).eval(), number),
        "number": (bundled("number"), number),
        "letter": (bundled("letter"), letter),
    }
    for name, (model, task) in models.items():
        yield from _measure_layers(name, model, torch.from_numpy(task.sample(inputs, seed).tokens), tau)


def _measure_layers(name: str, model: GPTJ, ids: Tensor, tau: float) -> list[HeadRow]:
    rows: list[HeadRow] = []
    group = "GPT-J, untrained" if name == "untrained" else f"GPT-J, {name} task"
    with torch.inference_mode():
        model(ids, on_heads=lambda n, heads: rows.append(_measure(group, f"{name} L{n}", layer_logits(heads)[:, 0], tau)))
    return rows


def hand_made(letters: Tensor, back: Tensor) -> dict[str, Float[Tensor, "B T T"]]:
    """`M` of heads with one RoPE plane, whose queries and keys are angles.

    positional  all keys alike; the query's angle says how many places back to look
    symbolic    a key's angle is its letter, the query's the letter it looks for; the plane does not turn
    binding     the same keys and queries in a plane that turns fast: which letter fits depends on where it stands
    """
    letter_angle = 2 * math.pi / ALPHABET
    turn = 0.8

    def at(angle: Tensor) -> Tensor:
        return torch.stack((angle.cos(), angle.sin()), -1)

    keys = at(-letter_angle * letters)
    sought = at(-letter_angle * letters[:, 0])
    still, fast = Rope(frequencies=[0.0]), Rope(frequencies=[turn])
    return {
        "positional": counterfactual_logits(at(-turn * back), at(torch.zeros_like(letters) * 1.0), fast, scale=SHARPNESS),
        "symbolic": counterfactual_logits(sought, keys, still, scale=SHARPNESS),
        "binding": counterfactual_logits(sought, keys, fast, scale=SHARPNESS),
    }


def _measure(group: str, head: str, M: Float[Tensor, "B T T"], tau: float) -> HeadRow:
    scores, shares, certificate = swap_scores(M, tau), variance_shares(M), exclusion(M)
    positional, symbolic = (mean_interval(score) for score in scores)
    return HeadRow(
        group=group,
        head=head,
        positional=float(positional.mean),
        positional_low=float(positional.low),
        positional_high=float(positional.high),
        symbolic=float(symbolic.mean),
        symbolic_low=float(symbolic.low),
        symbolic_high=float(symbolic.high),
        symbol_share=float(shares.symbol.mean()),
        position_share=float(shares.position.mean()),
        binding_share=float(shares.binding.mean()),
        entropy=float(entropy(M).mean()),
        exclusion_slack=float((certificate.bound - certificate.variance).min()),
    )
