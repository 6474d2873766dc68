"""RoPE planes and heads as a knob: keep, drop or scale planes, stop them from turning, or take heads out, while a model runs.

Logits are sums over planes, so multiplying the query's two numbers of plane `f` by `g` multiplies what the plane adds to every
logit by `g`, and nothing else: 0 drops the plane, 1 keeps it. A plane that is *stopped* (p-RoPE) still adds what query and key
have in common there, but no longer knows their places: both are turned back to position 0. A head that is *out* brings zeros.
Not the mean of what it brings, which would tell each position of tokens that come after it.

>>> import torch, ropescope as rs
>>> model, ids = rs.bundled("number"), torch.randint(120, (1, 17))
>>> with rs.controlled(model, rs.drop_planes(model, "fast")):
...     without = model(ids)
>>> bool(torch.allclose(without, model(ids)))
False

Weights are never touched. Everything here works on a `Door`, that is any model that can be opened, and on our own GPT-J.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..rope import Rope
from .door import Door, RefusedError, _hands, _Layout, _overhearing, _tables, connected, stopped_turns
from .gptj import GPTJ, Block


@dataclass(frozen=True)
class LayerChange:
    """What to change in one layer.

    gains    factor of each plane's logits, the dimensions that never turn the last plane; none: all 1
    heads    query heads that the gains are for; none: all
    stopped  planes that no longer turn, in all heads (heads share their keys)
    out      query heads that bring zeros

    Planes and heads count from 0 here; in text, as for `drop_planes`, planes count from 1.

    >>> import torch, ropescope as rs
    >>> model = rs.bundled("number")
    >>> ids = torch.randint(120, (1, 17))
    >>> with rs.controlled(model, {3: rs.LayerChange(stopped=(0, 1)), 5: rs.LayerChange(out=(0,))}):
    ...     changed = model(ids)
    >>> bool(torch.equal(changed, model(ids)))
    False
    """

    gains: tuple[float, ...] | None = None
    heads: tuple[int, ...] | None = None
    stopped: tuple[int, ...] = ()
    out: tuple[int, ...] = ()


Control = Mapping[int, LayerChange]
"""Changes by the number of the layer; other layers stay as they are."""


def ropes_of(model: Door | GPTJ) -> dict[int, Rope]:
    """The rotation of each attention layer, by its number."""
    if isinstance(model, GPTJ):
        return dict(enumerate(model.config.ropes))
    return dict(zip(model.layers, model.ropes, strict=True))


def heads_of(model: Door | GPTJ) -> dict[int, int]:
    """How many query heads each attention layer has, by its number."""
    if isinstance(model, GPTJ):
        return dict.fromkeys(range(model.config.layers), model.config.heads)
    return dict(zip(model.layers, model.heads, strict=True))


# Choosing planes


def select_planes(rope: Rope, text: str) -> tuple[int, ...]:
    """Planes of a rotation, from 0 on, by a list of

        3, 1-8          the planes themselves, from 1 on as in every table and chart; those that it has not are passed over
        2/8             the second of eight equal bands, from fast to slow
        fast, middle, slow      bands of three: 1/3, 2/3, 3/3
        fastest25%, slowest25%  a share
        still           the dimensions that never turn

    Bands and shares are of planes that turn; dimensions that never turn are in none of them.
    """
    order = sorted(range(len(rope.frequencies)), key=lambda plane: -abs(rope.frequencies[plane]))
    planes, chosen = len(rope.plane_frequencies), set[int]()
    for part in text.replace(" ", "").split(","):
        if number := re.fullmatch(r"(\d+)(?:-(\d+))?", part):
            first, last = int(number[1]), int(number[2] or number[1])
            if not 1 <= first <= last:
                raise ValueError(f"planes {part!r} is no range: planes count from 1, as in 1-8")
            chosen.update(range(first - 1, min(last, planes)))
        elif share := re.fullmatch(r"(fastest|slowest)(\d+(?:\.\d+)?)%", part):
            count = round(_share(float(share[2]) / 100) * len(order))
            chosen.update(order[:count] if share[1] == "fastest" else order[len(order) - count :])
        elif part == "still":
            chosen.update(range(len(order), planes))
        else:
            named = {"fast": "1/3", "middle": "2/3", "slow": "3/3"}.get(part, part)
            band = re.fullmatch(r"(\d+)/(\d+)", named)
            if not band or not 1 <= int(band[1]) <= int(band[2]):
                raise ValueError(
                    f"planes {part!r} is not understood: give ids as in 1-8,20, or fast, middle, slow, still, 2/8, "
                    f"fastest25% or slowest25%"
                )
            bounds = [round(k * len(order) / int(band[2])) for k in (int(band[1]) - 1, int(band[1]))]
            chosen.update(order[slice(*bounds)])
    return tuple(sorted(chosen))


def _share(share: float) -> float:
    if not 0 <= share <= 1:
        raise ValueError(f"a share of planes must be from 0 to 1 (0 % to 100 %), not {share:g}")
    return share


def chosen_planes(model: Door | GPTJ, text: str) -> dict[int, tuple[int, ...]]:
    """`select_planes` in every layer; refused if no layer has any of them."""
    chosen = {layer: select_planes(rope, text) for layer, rope in ropes_of(model).items()}
    if not any(chosen.values()):
        most = max(len(rope.plane_frequencies) for rope in ropes_of(model).values())
        raise ValueError(f"planes {text!r} are in no layer of the model, which has at most {most}")
    return chosen


Planes = str | Mapping[int, Sequence[int]]
"""Planes by `select_planes`, or by layer, from 0 on."""


def scale_planes(model: Door | GPTJ, planes: Planes, gain: float, others: float = 1.0) -> dict[int, LayerChange]:
    """Logits of these planes times `gain` in every layer and head, those of all other planes times `others`.

    model   a `Door` or one of our GPT-J
    planes  by text: ids from 1 on as in "1-8,20", bands "fast", "middle", "slow", or "2/8", the second of eight, shares
            "fastest25%", "slowest25%", or "still", the dimensions that never turn; or by layer, as ids from 0 on

    The result is for `controlled`: a `LayerChange` for each layer.

    Raises ValueError if the text is not understood, or no layer has any of the planes.

    >>> import ropescope as rs
    >>> change = rs.scale_planes(rs.bundled("number"), "1-2", 0.5)
    >>> len(change), change[0].gains[:4]
    (12, (0.5, 0.5, 1.0, 1.0))
    """
    chosen = chosen_planes(model, planes) if isinstance(planes, str) else planes
    control = {}
    for layer, rope in ropes_of(model).items():
        own = set(chosen.get(layer, ()))
        gains = tuple(gain if plane in own else others for plane in range(len(rope.plane_frequencies)))
        control[layer] = LayerChange(gains)
    return control


def drop_planes(model: Door | GPTJ, planes: Planes) -> dict[int, LayerChange]:
    """These planes add nothing to any logit. Planes and errors as for `scale_planes`.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import NumberTask
    >>> model, samples = rs.bundled("number"), NumberTask().sample(400, seed=0)
    >>> with rs.controlled(model, rs.drop_planes(model, "fastest12.5%")):
    ...     answers = model(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> float((answers == torch.from_numpy(samples.answer)).float().mean()) < 0.2  # it needs its fast planes
    True
    """
    return scale_planes(model, planes, 0.0)


def keep_planes(model: Door | GPTJ, planes: Planes) -> dict[int, LayerChange]:
    """Only these planes add to logits. Planes and errors as for `scale_planes`.

    >>> import ropescope as rs
    >>> rs.keep_planes(rs.bundled("letter"), "slow")[0].gains.count(1.0)  # of 64
    21
    """
    return scale_planes(model, planes, 1.0, 0.0)


def stop_planes(model: Door | GPTJ, planes: Planes) -> dict[int, LayerChange]:
    """These planes no longer turn; those that never do have nothing to stop. Planes and errors as for `scale_planes`.

    A plane that is stopped still adds what query and key have in common there, as if both stood at position 0.

    >>> import ropescope as rs
    >>> rs.stop_planes(rs.bundled("letter"), "1-3")[0].stopped
    (0, 1, 2)
    """
    chosen = chosen_planes(model, planes) if isinstance(planes, str) else planes
    ropes = ropes_of(model)
    return {
        layer: LayerChange(stopped=tuple(plane for plane in own if plane < len(ropes[layer].frequencies)))
        for layer, own in chosen.items()
    }


def p_rope(model: Door | GPTJ, share: float) -> dict[int, LayerChange]:
    """Stop the slowest share of planes from turning: 0 changes nothing, 1 takes all positions away (NoPE).

    model  a `Door` or one of our GPT-J
    share  of the planes that turn, the slowest first

    Barbero et al. 2024 (2410.06205) name p-RoPE by the share that goes on turning: their p is 1 - `share`.

    Raises ValueError if the share is not from 0 to 1.

    >>> import ropescope as rs
    >>> rs.p_rope(rs.bundled("letter"), 0.25)[0].stopped == tuple(range(48, 64))
    True
    """
    _share(share)
    return stop_planes(model, f"slowest{100 * share:.6f}%") if share else {}


_slowest_stopped = p_rope  # under a name that no argument takes


def heads_out(heads: Iterable[tuple[int, int]]) -> dict[int, LayerChange]:
    """These heads, as (layer, head), both from 0 on, bring zeros. `controlled` raises ValueError if the model has not got them.

    >>> import ropescope as rs
    >>> rs.heads_out([(0, 3), (0, 1), (7, 2)])[0].out
    (1, 3)
    """
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return {layer: LayerChange(out=tuple(sorted(own))) for layer, own in by_layer.items()}


def together(*controls: Control) -> dict[int, LayerChange]:
    """Several changes at once: gains are multiplied, what is stopped or out in one is so in all."""
    result: dict[int, LayerChange] = {}
    for control in controls:
        for layer, new in control.items():
            old = result.get(layer, LayerChange())
            if None not in (old.gains, new.gains) and old.heads != new.heads:
                raise ValueError(f"gains of layer {layer} are for heads {old.heads} and {new.heads}: give them for the same")
            gains = old.gains if new.gains is None else new.gains
            if old.gains is not None and new.gains is not None:
                gains = tuple(a * b for a, b in zip(old.gains, new.gains, strict=True))
            result[layer] = replace(
                old,
                gains=gains,
                heads=old.heads if new.gains is None else new.heads,
                stopped=tuple(sorted({*old.stopped, *new.stopped})),
                out=tuple(sorted({*old.out, *new.out})),
            )
    return result


def asked_for(
    model: Door | GPTJ,
    drop: str | None = None,
    keep: str | None = None,
    scale: str | None = None,
    stop: str | None = None,
    p_rope: float | None = None,
) -> dict[int, LayerChange]:
    """All of these at once, as a user writes them: planes by `select_planes`, `scale` as in fast=0.5."""
    changes: list[Control] = []
    if drop is not None:
        changes.append(drop_planes(model, drop))
    if keep is not None:
        changes.append(keep_planes(model, keep))
    if scale is not None:
        planes, _, gain = scale.rpartition("=")
        try:
            factor = float(gain)
        except ValueError:
            factor = math.nan
        if not planes or not math.isfinite(factor):
            raise ValueError(f"scale must be planes and a number, as in fast=0.5, not {scale!r}")
        changes.append(scale_planes(model, planes, factor))
    if stop is not None:
        changes.append(stop_planes(model, stop))
    if p_rope is not None:
        changes.append(_slowest_stopped(model, p_rope))
    return together(*changes)


# Changing


@contextlib.contextmanager
def controlled(model: nn.Module | Door, control: Control) -> Iterator[None]:
    """During it the model, however it is called, attends as `control` says; a door to it hears it so, too.

    model    a model of `transformers`, a `Door` to it, or one of our GPT-J; give the door where there is one, as opening
             takes a few passes
    control  changes by the number of the layer, from `drop_planes`, `keep_planes`, `scale_planes`, `stop_planes`, `p_rope` or
             `heads_out`; other layers stay as they are

    Weights are not touched, and afterwards all is as it was.

    Raises ValueError if a layer, plane or head does not exist, or the model is controlled already, and RefusedError if the
    model cannot be opened, or planes are to be stopped while earlier keys come from a cache.

    >>> import torch, ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    >>> door, ids = rs.Door(model), torch.randint(64, (1, 12))
    >>> with rs.controlled(door, rs.p_rope(door, 1.0)), torch.inference_mode():  # no positions are left
    ...     scores = rs.profile(door, [ids[0]], planes=False, sensitivity=False)
    >>> bool((scores.symbolic > 1 - 1e-6).all())
    True
    """
    opened = model if isinstance(model, Door | GPTJ) else Door(model)
    _check(opened, control)
    with _own_controlled(opened, control) if isinstance(opened, GPTJ) else _door_controlled(opened, control):
        yield


def _check(model: Door | GPTJ, control: Control) -> None:
    ropes, heads = ropes_of(model), heads_of(model)
    for layer, change in control.items():
        if layer not in ropes:
            raise ValueError(f"layer {layer} does not attend: the model's attention layers are {', '.join(map(str, ropes))}")
        planes, turning = len(ropes[layer].plane_frequencies), len(ropes[layer].frequencies)
        if change.gains is not None and (len(change.gains) != planes or not all(map(math.isfinite, change.gains))):
            raise ValueError(f"gains of layer {layer} must be {planes} finite numbers, one for each plane, not {change.gains}")
        if not all(0 <= plane < turning for plane in change.stopped):
            raise ValueError(f"stopped planes of layer {layer} must be from 0 to {turning - 1}, not {change.stopped}")
        for name, chosen in (("heads", change.heads or ()), ("out", change.out)):
            if not all(0 <= head < heads[layer] for head in chosen):
                raise ValueError(f"{name} of layer {layer} must be from 0 to {heads[layer] - 1}, not {chosen}")


def _by_dimension(change: LayerChange, rope: Rope, first: int, heads: int) -> Float[Tensor, "H 1 d"]:
    """The gain of each head's dimensions."""
    gains = torch.tensor(change.gains, dtype=torch.float64)
    turning, still = gains[: len(rope.frequencies)], gains[len(rope.frequencies) :]
    still = still.expand(rope.head_dim - rope.rotary_dim) if len(still) else still
    row = rope.from_planes(torch.complex(turning, turning), still).roll(first)
    table = row.expand(heads, 1, -1).clone()
    if change.heads is not None:
        table[[head for head in range(heads) if head not in change.heads]] = 1.0
    return table


@contextlib.contextmanager
def _own_controlled(model: GPTJ, control: Control) -> Iterator[None]:
    """Queries are scaled and values of heads that are out set to zero as they come; the rotation is another one."""
    with contextlib.ExitStack() as stack:
        for layer, change in control.items():
            block = model.blocks[layer]
            assert isinstance(block, Block)
            before = vars(block).copy()
            stack.callback(vars(block).update, rope=block.rope)
            stack.callback(_restore, block, before.get("project"))
            vars(block)["project"] = _projecting(block, change)
            still = [0.0 if n in change.stopped else f for n, f in enumerate(block.rope.frequencies)]
            block.rope = Rope(block.rope.head_dim, pairing=block.rope.pairing, frequencies=still)
        yield


def _restore(block: Block, project: Callable[..., tuple[Tensor, Tensor, Tensor]] | None) -> None:
    vars(block).pop("project")
    if project is not None:  # one control inside another
        vars(block)["project"] = project


def _projecting(block: Block, change: LayerChange) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    project = block.project
    gains = None if change.gains is None else _by_dimension(change, block.rope, 0, block.heads)

    def changed(normed: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = project(normed, positions)
        if gains is not None:
            queries = queries * gains.to(queries)
        if change.out:
            values = values.clone()
            values[:, list(change.out)] = 0
        return queries, keys, values

    return changed


class _LayerHand:
    """Changes the calls of attention of one module: the first by the first change, and so on, if it attends several times."""

    def __init__(
        self,
        changes: Sequence[tuple[LayerChange, _Layout, Rope, int]],
        tables: Callable[[int], Mapping[str, Tensor]],
        where: str,
    ) -> None:
        self.changes, self.tables, self.where = changes, tables, where
        self.stopped: tuple[int, ...] = ()
        self.gains = [
            None if change.gains is None else _by_dimension(change, rope, layout.first, heads)
            for change, layout, rope, heads in changes
        ]
        self.begin()

    def begin(self) -> None:
        """A new forward pass."""
        self.passed = -1
        self.last: tuple[Tensor, Tensor, Tensor] | None = None

    def give(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys to attend with instead."""
        if self.last is not None and query is self.last[0]:  # differential attention: the same weights for other values
            return self.last[1:]
        self.passed += 1
        if self.passed >= len(self.changes):
            raise RefusedError(f"{self.where}: on this input it attends more often than on the first trial")
        change, layout, rope, _ = self.changes[self.passed]
        gains = self.gains[self.passed]
        self.stopped = change.stopped
        given = query if gains is None else query * gains.to(query)
        new_key = key
        if change.stopped:
            if key.shape[-2] != query.shape[-2]:
                raise RefusedError(f"{self.where}: planes can only be stopped in one pass over all tokens: use_cache=False")
            turns = layout.turns(self.tables(key.shape[-2]))
            back = stopped_turns(turns, change.stopped) / turns
            given, new_key = (_turned(x, back, layout, rope, side) for x, side in ((given, 1), (key, -1)))
        self.last = (query, given, new_key)
        return given, new_key

    def bring(self, output: Tensor) -> Tensor:
        """Zeros for heads that are out."""
        out = self.changes[self.passed][0].out
        if not out:
            return output
        output = output.clone()
        output[:, list(out)] = 0
        return output


def _turned(x: Tensor, turns: Tensor, layout: _Layout, rope: Rope, side: int) -> Tensor:
    """Planes times turns, wherever the layer keeps them. A norm after the rotation has its weight on the key's side (-1)."""
    weight = None if layout.key_weight is None else layout.key_weight.to(x.dtype) ** side
    turning, still = rope.to_planes((x if weight is None else x * weight).roll(-layout.first, -1))
    result = rope.from_planes(turning * turns.to(turning.dtype), still).roll(layout.first, -1).to(x.dtype)
    return result if weight is None else result / weight


@contextlib.contextmanager
def _door_controlled(door: Door, control: Control) -> Iterator[None]:
    changes: dict[nn.Module, list[tuple[LayerChange, _Layout, Rope, int]]] = {}
    for layer, module, layout, rope, heads in zip(
        door.layers, door.modules, door._layouts, door.ropes, door.heads, strict=True
    ):
        changes.setdefault(module, []).append((control.get(layer, LayerChange()), layout, rope, heads))
    if taken := [module for module in changes if module in _hands]:
        raise ValueError(f"{type(taken[0]).__name__} is controlled already: put changes together instead of one in another")

    with contextlib.ExitStack() as stack:
        arguments, rotary = stack.enter_context(_overhearing(door.model, set(door.modules)))

        def tables_of(module: nn.Module) -> Callable[[int], Mapping[str, Tensor]]:
            return lambda tokens: _tables(module, tokens, arguments[module], rotary, {})

        hands = {module: _LayerHand(own, tables_of(module), door.family) for module, own in changes.items()}
        stack.enter_context(connected(door.model))

        def begin(*_: object) -> None:
            for hand in hands.values():
                hand.begin()

        stack.callback(door.model.register_forward_pre_hook(begin).remove)
        _hands.update(hands)
        for module in hands:
            stack.callback(_hands.pop, module)
        yield
