"""How changes of attention are applied while a model runs: by hooks on `transformers` models, by wrapping in our GPT-J."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...rope import Rope
from ..gptj import GPTJ, Block
from .adapter import Adapter
from .calls import RefusedError
from .hooks import Edit, connected, edit_of, editing, recording
from .rotation import Layout, rotation_tables, stopped_turns
from .sharpening import HeadSharpening, keys_seen, sharpened
from .windows import HeadWindow, Passed, passed, windowed_mask


@dataclass(frozen=True)
class LayerChange:
    """What to change in one layer.

    gains    factor of each plane's logits, the dimensions that never turn the last plane; None: all 1
    heads    query heads that the gains are for; None: all
    stopped  planes that no longer turn, in all heads (heads share their keys)
    out      query heads whose output is set to zero
    windows  key heads whose queries see only the first and the last positions
    sharper  query heads whose logits grow with the number of keys

    Planes and heads count from 0 here; in text, as for `drop_planes`, planes count from 1.

    >>> import torch, ropescope as rs
    >>> model = rs.bundled("number")
    >>> ids = torch.randint(120, (1, 17))
    >>> with rs.intervene(model, {3: rs.LayerChange(stopped=(0, 1)), 5: rs.LayerChange(out=(0,))}):
    ...     changed = model(ids)
    >>> bool(torch.equal(changed, model(ids)))
    False
    """

    gains: tuple[float, ...] | None = None
    heads: tuple[int, ...] | None = None
    stopped: tuple[int, ...] = ()
    out: tuple[int, ...] = ()
    windows: tuple[HeadWindow, ...] = ()
    sharper: tuple[HeadSharpening, ...] = ()


Changes = Mapping[int, LayerChange]
"""Changes by the number of the layer; other layers stay unchanged."""


def _gains_by_dimension(change: LayerChange, rope: Rope, first: int, heads: int) -> Float[Tensor, "H 1 d"]:
    """The gain of each head's dimensions."""
    gains = torch.tensor(change.gains, dtype=torch.float64)
    turning, still = gains[: len(rope.frequencies)], gains[len(rope.frequencies) :]
    still = still.expand(rope.head_dim - rope.rotary_dim) if len(still) else still
    row = rope.from_planes(torch.complex(turning, turning), still).roll(first)
    table = row.expand(heads, 1, -1).clone()
    if change.heads is not None:
        table[[head for head in range(heads) if head not in change.heads]] = 1.0
    return table


def windows_in_force(module: nn.Module) -> tuple[HeadWindow, ...]:
    """Windows that an intervention has put on the (first) attention of a module."""
    edit = edit_of(module)
    return edit.changes[0][0].windows if isinstance(edit, _LayerEdit) else ()


# Our GPT-J


@contextlib.contextmanager
def changed_gptj(model: GPTJ, changes: Changes) -> Iterator[None]:
    """Within it, queries are scaled, values of removed heads are zero, and stopped planes have frequency zero."""
    with contextlib.ExitStack() as stack:
        for layer, change in changes.items():
            if change.windows:
                raise RefusedError("windows are for models of transformers: our GPT-J has no cache")
            block = model.blocks[layer]
            assert isinstance(block, Block)
            before = vars(block).copy()
            stack.callback(vars(block).update, rope=block.rope)
            stack.callback(_restore, block, before.get("project"))
            vars(block)["project"] = _changed_projection(block, change)
            still = [0.0 if n in change.stopped else f for n, f in enumerate(block.rope.frequencies)]
            block.rope = Rope(block.rope.head_dim, pairing=block.rope.pairing, frequencies=still)
        yield


def _restore(block: Block, project: Callable[..., tuple[Tensor, Tensor, Tensor]] | None) -> None:
    vars(block).pop("project")
    if project is not None:  # one intervention within another
        vars(block)["project"] = project


def _changed_projection(block: Block, change: LayerChange) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    project = block.project
    gains = None if change.gains is None else _gains_by_dimension(change, block.rope, 0, block.heads)

    def changed(normed: Tensor, positions: Tensor, last_only: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = project(normed, positions, last_only)
        if gains is not None:
            queries = queries * gains.to(queries)
        if change.sharper:
            queries = sharpened(queries, change.sharper, (positions[-queries.shape[2] :] + 1)[None, None])
        if change.out:
            values = values.clone()
            values[:, list(change.out)] = 0
        return queries, keys, values

    return changed


# Models of transformers


@contextlib.contextmanager
def changed_adapter(adapter: Adapter, changes: Changes) -> Iterator[None]:
    """Within it, the calls of attention of the adapter's model are changed by hooks."""
    by_module: dict[nn.Module, list[tuple[LayerChange, Layout, Rope, int]]] = {}
    for layer, module, layout, rope, heads in zip(
        adapter.layers, adapter.modules, adapter.layouts, adapter.ropes, adapter.heads, strict=True
    ):
        by_module.setdefault(module, []).append((changes.get(layer, LayerChange()), layout, rope, heads))

    with contextlib.ExitStack() as stack:
        arguments, rotary = stack.enter_context(recording(adapter.model, set(adapter.modules)))

        def tables_of(module: nn.Module) -> Callable[[int], Mapping[str, Tensor]]:
            return lambda tokens: rotation_tables(module, tokens, arguments[module], rotary, {})

        edits = {module: _LayerEdit(own, tables_of(module), adapter.family) for module, own in by_module.items()}

        def begin(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            at = passed(args, kwargs)
            for edit in edits.values():
                edit.begin(at)

        stack.enter_context(connected(adapter.model))
        stack.callback(adapter.model.register_forward_pre_hook(begin, with_kwargs=True).remove)
        stack.enter_context(editing(dict[nn.Module, Edit](edits)))
        yield


class _LayerEdit:
    """Changes the calls of attention of one module: the first by the first change, and so on, if it attends several times."""

    def __init__(
        self,
        changes: Sequence[tuple[LayerChange, Layout, Rope, int]],
        tables: Callable[[int], Mapping[str, Tensor]],
        family: str,
    ) -> None:
        self.changes, self.tables, self.family = changes, tables, family
        self.stopped: tuple[int, ...] = ()
        self.gains = [
            None if change.gains is None else _gains_by_dimension(change, rope, layout.first, heads)
            for change, layout, rope, heads in changes
        ]
        self.begin()

    def begin(self, at: Passed = Passed()) -> None:  # noqa: B008
        """Start a new forward pass."""
        self.passed, self.at = -1, at
        self.last: tuple[Tensor, Tensor, Tensor, Tensor | None] | None = None

    def edit_inputs(self, query: Tensor, key: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries, keys and mask to attend with instead: windowed heads see less."""
        if self.last is not None and query is self.last[0]:  # differential attention: the same weights for other values
            return self.last[1:]
        self.passed += 1
        if self.passed >= len(self.changes):
            raise RefusedError(f"{self.family}: on this input it attends more often than on the trial input")
        change, layout, rope, _ = self.changes[self.passed]
        gains = self.gains[self.passed]
        self.stopped = change.stopped
        new_query = query if gains is None else query * gains.to(query)
        new_key = key
        if change.stopped:
            if key.shape[-2] != query.shape[-2]:
                raise RefusedError(f"{self.family}: planes can only be stopped in one pass over all tokens: use_cache=False")
            turns = layout.turns(self.tables(key.shape[-2]))
            back = stopped_turns(turns, change.stopped) / turns
            new_query, new_key = (_turned(x, back, layout, rope, side) for x, side in ((new_query, 1), (key, -1)))
        new_mask = windowed_mask(mask, change.windows, query, key, self.at) if change.windows else mask
        if change.sharper:
            new_query = sharpened(new_query, change.sharper, keys_seen(new_mask, query, key, self.at))
        self.last = (query, new_query, new_key, new_mask)
        return self.last[1:]

    def edit_output(self, output: Tensor) -> Tensor:
        """The output with zeros for removed heads."""
        out = self.changes[self.passed][0].out
        if not out:
            return output
        output = output.clone()
        output[:, list(out)] = 0
        return output


def _turned(x: Tensor, turns: Tensor, layout: Layout, rope: Rope, side: int) -> Tensor:
    """Planes times turns, in the layer's own layout. A norm after the rotation has its weight on the key's side (-1)."""
    weight = None if layout.key_weight is None else layout.key_weight.to(x.dtype) ** side
    turning, still = rope.to_planes((x if weight is None else x * weight).roll(-layout.first, -1))
    result = rope.from_planes(turning * turns.to(turning.dtype), still).roll(layout.first, -1).to(x.dtype)
    return result if weight is None else result / weight
