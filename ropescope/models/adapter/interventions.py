"""Interventions on a running model: keep, drop, scale or stop RoPE planes; remove or sharpen heads, or limit what they see.

Logits are sums over planes, so multiplying the query's two numbers of plane `f` by `g` multiplies what the plane adds to every
logit by `g`, and nothing else: 0 drops the plane, 1 keeps it. A plane that is *stopped* (p-RoPE) still adds what query and key
have in common there, but no longer depends on their positions: both are turned back to position 0. A head that is *removed*
outputs zeros, not its mean output, which would contain information about later tokens. A key head that is *windowed* sees the
first and the last positions only, with all query heads that share it. A query head that is *sharpened* has logits that grow
with the number of keys.

>>> import torch, ropescope as rs
>>> model, ids = rs.bundled("number"), torch.randint(120, (1, 17))
>>> with rs.intervene(model, rs.drop_planes(model, "fast")):
...     without = model(ids)
>>> bool(torch.allclose(without, model(ids)))
False

Weights are never changed. Everything here works with an `Adapter`, so with any model that it can read, and with our GPT-J.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import nn

from ...inputs import whole
from ..gptj import GPTJ
from .adapter import Adapter
from .edits import Changes, LayerChange, changed_adapter, changed_gptj
from .planes import Planes, check_share, chosen_planes, heads_of, key_heads_of, ropes_of
from .sharpening import head_sharpenings
from .windows import head_windows


def scale_planes(model: Adapter | GPTJ, planes: Planes, gain: float, others: float = 1.0) -> dict[int, LayerChange]:
    """Changes that multiply the logits of these planes by `gain` in every layer and head, and those of others by `others`.

    model   an `Adapter` or one of our GPT-J
    planes  by text: ids from 1 on as in "1-8,20", bands "fast", "middle", "slow", or "2/8", the second of eight, shares
            "fastest25%", "slowest25%", or "still", the dimensions that never turn; or by layer, as ids from 0 on

    The result is for `intervene`: a `LayerChange` for each layer.

    Raises ValueError if the text is not understood, or no layer has any of the planes.

    >>> import ropescope as rs
    >>> change = rs.scale_planes(rs.bundled("number"), "1-2", 0.5)
    >>> len(change), change[0].gains[:4]
    (12, (0.5, 0.5, 1.0, 1.0))
    """
    chosen = chosen_planes(model, planes)
    changes = {}
    for layer, rope in ropes_of(model).items():
        own = {whole("a plane", plane) for plane in chosen.get(layer, ())}
        gains = tuple(gain if plane in own else others for plane in range(len(rope.plane_frequencies)))
        changes[layer] = LayerChange(gains)
    return changes


def drop_planes(model: Adapter | GPTJ, planes: Planes) -> dict[int, LayerChange]:
    """Changes with which these planes add nothing to any logit. Planes and errors as for `scale_planes`.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import NumberTask
    >>> model, samples = rs.bundled("number"), NumberTask().sample(400, seed=0)
    >>> with rs.intervene(model, rs.drop_planes(model, "fastest12.5%")):
    ...     answers = model(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> float((answers == torch.from_numpy(samples.answer)).float().mean()) < 0.2  # it needs its fast planes
    True
    """
    return scale_planes(model, planes, 0.0)


def keep_planes(model: Adapter | GPTJ, planes: Planes) -> dict[int, LayerChange]:
    """Changes with which only these planes add to logits. Planes and errors as for `scale_planes`.

    >>> import ropescope as rs
    >>> rs.keep_planes(rs.bundled("letter"), "slow")[0].gains.count(1.0)  # of 64
    21
    """
    return scale_planes(model, planes, 1.0, 0.0)


def stop_planes(model: Adapter | GPTJ, planes: Planes) -> dict[int, LayerChange]:
    """Changes with which these planes no longer turn. Planes and errors as for `scale_planes`.

    A stopped plane still adds what query and key have in common there, as if both were at position 0. Dimensions that never
    turn have nothing to stop.

    >>> import ropescope as rs
    >>> rs.stop_planes(rs.bundled("letter"), "1-3")[0].stopped
    (0, 1, 2)
    """
    ropes = ropes_of(model)
    return {
        layer: LayerChange(stopped=tuple(plane for plane in own if plane < len(ropes[layer].frequencies)))
        for layer, own in chosen_planes(model, planes).items()
    }


def p_rope(model: Adapter | GPTJ, share: float) -> dict[int, LayerChange]:
    """Changes with which the slowest share of planes no longer turns: 0 changes nothing, 1 removes all positions (NoPE).

    model  an `Adapter` or one of our GPT-J
    share  of the planes that turn, the slowest first

    Barbero et al. 2024 (2410.06205) name p-RoPE by the share that still turns: their p is 1 - `share`.

    Raises ValueError if the share is not from 0 to 1.

    >>> import ropescope as rs
    >>> rs.p_rope(rs.bundled("letter"), 0.25)[0].stopped == tuple(range(48, 64))
    True
    """
    check_share(share)
    return stop_planes(model, f"slowest{100 * share:.6f}%") if share else {}


_p_rope = p_rope  # under a name that no argument hides


def remove_heads(heads: Iterable[tuple[int, int]]) -> dict[int, LayerChange]:
    """Changes with which these heads, as (layer, head) from 0 on, output zeros.

    `intervene` raises ValueError if the model does not have them.

    >>> import ropescope as rs
    >>> rs.remove_heads([(0, 3), (0, 1), (7, 2)])[0].out
    (1, 3)
    """
    return {layer: LayerChange(out=tuple(sorted(own))) for layer, own in _by_layer(heads).items()}


def _by_layer(heads: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """The heads of each layer."""
    found: dict[int, list[int]] = {}
    for layer, head in heads:
        found.setdefault(layer, []).append(head)
    return found


def window_heads(heads: Iterable[tuple[int, int]], sinks: int = 16, window: int = 64) -> dict[int, LayerChange]:
    """Changes with which these key heads, as (layer, key head) from 0 on, see the first and the last positions only.

    heads   key heads; all query heads that share one see the same
    sinks   so many first positions stay visible
    window  so many last positions, the query's own included

    It is exact at prefill and when generating with any cache, because it is a mask. `WindowedCache` holds less for such heads.

    Raises ValueError if sinks or window are out of range; `intervene` does if the model does not have the heads.

    >>> import ropescope as rs
    >>> rs.window_heads([(0, 1), (4, 0)], sinks=4, window=32)[4].windows
    (HeadWindow(head=0, sinks=4, window=32),)
    """
    return {layer: LayerChange(windows=head_windows(own, sinks, window)) for layer, own in _by_layer(heads).items()}


def sharpen_heads(heads: Iterable[tuple[int, int]], length: int) -> dict[int, LayerChange]:
    """Changes that multiply the logits of these query heads by log n / log `length` where a query sees n > `length` keys.

    heads   query heads, as (layer, head) from 0 on
    length  the longest input that the heads are used to, such as that of training; shorter ones are unchanged

    Softmax over n keys needs a difference of logits that grows with log n to keep its weight on one of them. Keys are counted
    by the mask of the query, so it is exact at prefill and with any cache. A soft-cap of the model applies afterwards.

    Raises ValueError if the length is below 2; `intervene` does if the model does not have the heads.

    >>> import ropescope as rs
    >>> rs.sharpen_heads([(0, 1), (4, 0)], length=256)[4].sharper
    (HeadSharpening(head=0, length=256),)
    """
    return {layer: LayerChange(sharper=head_sharpenings(own, length)) for layer, own in _by_layer(heads).items()}


def combine(*several: Changes) -> dict[int, LayerChange]:
    """Several changes as one: gains are multiplied; what any stops, removes, windows or sharpens, the result does, too."""
    result: dict[int, LayerChange] = {}
    for changes in several:
        for layer, new in changes.items():
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
                windows=tuple(sorted({*old.windows, *new.windows})),
                sharper=tuple(sorted({*old.sharper, *new.sharper})),
            )
    return result


def parse_changes(
    model: Adapter | GPTJ,
    drop: str | None = None,
    keep: str | None = None,
    scale: str | None = None,
    stop: str | None = None,
    p_rope: float | None = None,
) -> dict[int, LayerChange]:
    """All of these changes as one, as a user writes them: planes by `select_planes`, `scale` as in fast=0.5."""
    changes: list[Changes] = []
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
        changes.append(_p_rope(model, p_rope))
    return combine(*changes)


@contextlib.contextmanager
def intervene(model: nn.Module | Adapter, changes: Changes) -> Iterator[None]:
    """A context in which the model, however it is called, attends with these changes; an adapter to it reads them, too.

    model    a model of `transformers`, an `Adapter` to it, or one of our GPT-J; give the adapter where there is one, as making
             it takes a few passes
    changes  by the number of the layer, from `drop_planes`, `keep_planes`, `scale_planes`, `stop_planes`, `p_rope`,
             `remove_heads`, `window_heads` or `sharpen_heads`; other layers stay unchanged

    Weights are not changed, and after it the model is as before.

    Raises ValueError if a layer, plane or head does not exist, or the model is changed already, and RefusedError if the
    model cannot be read, or planes are to be stopped while earlier keys come from a cache.

    >>> import torch, ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    >>> adapter, ids = rs.Adapter(model), torch.randint(64, (1, 12))
    >>> with rs.intervene(adapter, rs.p_rope(adapter, 1.0)), torch.inference_mode():  # no positions are left
    ...     scores = rs.profile(adapter, [ids[0]], planes=False, sensitivity=False)
    >>> bool((scores.symbolic > 1 - 1e-6).all())
    True
    """
    target = model if isinstance(model, Adapter | GPTJ) else Adapter(model)
    _check(target, changes)
    with changed_gptj(target, changes) if isinstance(target, GPTJ) else changed_adapter(target, changes):
        yield


def _check(model: Adapter | GPTJ, changes: Changes) -> None:
    ropes, heads, key_heads = ropes_of(model), heads_of(model), key_heads_of(model)
    for layer, change in changes.items():
        if layer not in ropes:
            raise ValueError(f"layer {layer} does not attend: the model's attention layers are {', '.join(map(str, ropes))}")
        planes, turning = len(ropes[layer].plane_frequencies), len(ropes[layer].frequencies)
        if change.gains is not None and (len(change.gains) != planes or not all(map(math.isfinite, change.gains))):
            raise ValueError(f"gains of layer {layer} must be {planes} finite numbers, one for each plane, not {change.gains}")
        if not all(0 <= whole(f"a stopped plane of layer {layer}", plane) < turning for plane in change.stopped):
            raise ValueError(f"stopped planes of layer {layer} must be from 0 to {turning - 1}, not {change.stopped}")
        sharper = [each.head for each in change.sharper]
        for name, chosen in (("heads", change.heads or ()), ("out", change.out), ("sharper heads", tuple(sharper))):
            if not all(0 <= whole(f"a head of layer {layer}", head) < heads[layer] for head in chosen):
                raise ValueError(f"{name} of layer {layer} must be from 0 to {heads[layer] - 1}, not {chosen}")
        windowed = [window.head for window in change.windows]
        if not all(0 <= head < key_heads[layer] for head in windowed):
            raise ValueError(f"windowed key heads of layer {layer} must be from 0 to {key_heads[layer] - 1}, not {windowed}")
        if len(set(windowed)) < len(windowed):
            raise ValueError(f"a key head of layer {layer} has two windows: give it one")
        if len(set(sharper)) < len(sharper):
            raise ValueError(f"a head of layer {layer} is sharpened from two lengths: give it one")
