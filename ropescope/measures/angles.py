"""Swap scores of single RoPE planes over blocks, without an exponential for every token and place, with a bound on the error.

In one plane a place is an angle, and a token at angle `x` has the weight `exp(r cos(phi - x))`, a smooth periodic function of
`x`. So has a block, which turns as a whole when it moves. Its values at a few angles determine it at all others, by
trigonometric interpolation. Weights of all blocks in all places are then one matrix product per plane and head: values at
those angles, times the interpolation to the places.

What bounds the error, relative to weights and hence of the scores:

- Interpolation from `2 N + 1` angles is off by at most four times the sum of Fourier coefficients beyond N, which are Bessel
  functions `I_n(r) <= (r / 2)**n / n! * exp(r**2 / (4 n + 4))`. The least weight is `exp(-r)`.
- Rounding: the largest term over the least weight is `exp(2 r)`. Where single precision is not enough, double is used.
- The rotation that a model really applied, in single precision, differs a little from a turn as a whole. That is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..logits import LogitFactors
from .blocks import block_logits
from .scores import swap_scores
from .visible import Blocks, Spans

ORDERS = ((torch.float32, 5), (torch.float32, 8), (torch.float64, 14), (torch.float64, 30))
"""Precision and N of the interpolations to choose from, cheapest first."""
AT_ONCE = 1 << 18
"""Weights held at a time."""
LEBESGUE = 4.0
"""Bound on the sum of sizes of the coefficients of an interpolation of up to 61 angles: 1 + 2 / pi * log(61) is 3.6."""


@torch.no_grad()
def angle_scores(
    factors: LogitFactors, frequencies: Float[Tensor, " F"], blocks: Blocks, tau: float, tolerance: float
) -> tuple[Float[Tensor, "F *batch"], Float[Tensor, "F *batch"], Float[Tensor, "F *batch"]]:
    """Positional and symbolic score of every plane, and a bound on their error.

    factors      of each plane alone, from `LogitFactors.by_plane`, at one query
    frequencies  radians per position of each plane
    blocks       at least two ranges of positions that the query sees, in order
    tau          temperature
    tolerance    error to stay within, above 0; planes that could not are computed exactly
    """
    shape = factors.content.shape[:-2]
    spans = _spans(blocks, factors.content.device)
    logits = factors.diagonal().flatten(0, -2)
    moving = _tokens(spans)
    content = torch.view_as_complex(factors.content.contiguous()).flatten(0, -2)
    turns, slip = _turns(factors, frequencies, spans)
    plane = torch.arange(len(turns), device=logits.device).repeat_interleave(len(content) // len(turns))
    size = turns.abs().amax(-1)
    radius = factors.content.flatten(0, -3)[:, moving].square().sum(-1).amax(-1).sqrt() * size[plane]
    real = _real(logits, spans, tau)
    known = torch.finfo(logits.dtype).eps * (8 + logits[:, moving].abs().amax(-1)) * 2 * real.spread
    errors = torch.stack([_bound(radius, slip[plane] * radius, order, dtype, spans) + known for dtype, order in ORDERS])
    choice = torch.where(errors <= tolerance, 0, 1).cumprod(0).sum(0)  # the first that is good enough
    scores = logits.new_empty(2, len(content))
    evenly = _evenly(turns, frequencies, spans)
    for number, (dtype, order) in enumerate(ORDERS):
        which = (choice == number).nonzero()[:, 0]
        for some in _parts(which, spans, 8):
            scores[:, some] = _scores(content[some], plane[some], evenly, spans, real.some(some), order, dtype)
    error = errors.gather(0, choice.clamp(max=len(ORDERS) - 1)[None])[0].masked_fill_(choice == len(ORDERS), 0)
    which = (choice == len(ORDERS)).nonzero()[:, 0]
    for some in _parts(which, spans):
        exact = swap_scores(block_logits(_chosen(factors, some, plane[some]), blocks), tau)
        scores[:, some] = torch.stack(exact)
    return scores[0].reshape(shape), scores[1].reshape(shape), error.reshape(shape)


def _parts(which: Int[Tensor, " n"], spans: Spans, times: int = 1) -> tuple[Tensor, ...]:
    return which.split(times * max(1, AT_ONCE // len(spans.starts) ** 2)) if len(which) else ()


def _spans(blocks: Blocks, device: torch.device) -> Spans:
    bounds = torch.tensor(sorted(blocks), device=device)
    return Spans(bounds[:, 0].contiguous(), bounds[:, 1].contiguous())


def _tokens(spans: Spans) -> Int[Tensor, " t"]:
    """Positions of the tokens of all blocks."""
    lengths = spans.lengths
    first = (spans.starts - lengths.cumsum(0) + lengths).repeat_interleave(lengths)
    return first + torch.arange(len(first), device=first.device)


def _turns(factors: LogitFactors, frequencies: Tensor, spans: Spans) -> tuple[Tensor, Float[Tensor, " F"]]:
    """(F, T) places as complex numbers, and how far, relative to their size, they are from turning evenly within a block."""
    place = factors.place.expand(len(frequencies), *factors.place.shape[1:])
    turns = torch.view_as_complex(place.reshape(len(frequencies), -1, 2).contiguous())
    moving, lengths = _tokens(spans), spans.lengths
    slip = turns.real.new_zeros(len(frequencies))
    for reference in () if spans.single else (spans.starts, spans.stops - 1):
        at = reference.repeat_interleave(lengths)
        even = turns[:, at] * torch.exp(1j * (at - moving) * frequencies[:, None])
        slip = torch.maximum(slip, ((turns[:, moving] - even).abs() / turns.abs().amax(-1, keepdim=True)).amax(-1))
    # Sizes of places that differ between blocks are as good as a slip.
    size = turns[:, moving].abs()
    return turns, slip + 1 - size.amin(-1) / size.amax(-1).clamp(min=torch.finfo(size.dtype).tiny)


@dataclass(frozen=True)
class Real:
    """What the real attention gives, for N planes of heads.

    heavy, light  (N, m), both parts of the weights of swaps
    weights       (N, m), mean weights of blocks over the largest
    total, same   (N,), sum of the weights of all swaps, and half that of blocks with themselves
    spread        (N,), range of the weights of blocks over tau
    """

    heavy: Tensor
    light: Tensor
    weights: Tensor
    total: Tensor
    same: Tensor
    spread: Tensor

    def some(self, which: Tensor) -> Real:
        """The same for some planes of heads."""
        return Real(*(getattr(self, field.name)[which] for field in fields(self)))


def _real(logits: Float[Tensor, "N T"], spans: Spans, tau: float) -> Real:
    weights = (logits - logits.logsumexp(-1, keepdim=True)).exp()
    if spans.single:
        mean = weights[:, spans.starts]
    else:
        means = torch.zeros(weights.shape[-1], len(spans.starts), dtype=weights.dtype, device=weights.device)
        owner = torch.arange(len(spans.starts), device=weights.device).repeat_interleave(spans.lengths)
        means[_tokens(spans), owner] = 1 / spans.lengths.to(weights.dtype)[owner]
        mean = weights @ means  # sums of positive numbers: differences of cumulative sums would lose digits
    mean, order = mean.sort(-1, descending=True)
    high, low = mean[:, :1], mean[:, -1:]
    heavy, light = ((mean - high) / tau).exp_(), ((low - mean) / tau).exp_()
    later = light.flip(-1).cumsum(-1).flip(-1)[:, 1:]
    total = torch.linalg.vecdot(heavy[:, :-1], later)
    same = (heavy * light).sum(-1) / 2
    back = order.argsort(-1)
    heavy, light, mean = (x.gather(-1, back) for x in (heavy, light, mean / high))
    return Real(heavy, light, mean, total, same, (high - low)[:, 0] / tau)


def _bound(radius: Tensor, slip: Tensor, order: int, dtype: torch.dtype, spans: Spans) -> Float[Tensor, " N"]:
    """Bound on the error of scores of planes with logits up to `radius`."""
    eps, small = torch.finfo(dtype).eps, radius.clamp(max=60)  # beyond that no interpolation is good enough
    first = order + 1
    largest = (first * (small / 2).log() - math.lgamma(first + 1) + small.square() / (4 * first + 4)).exp()
    tail = largest / (1 - small / 2 / (first + 1)).clamp(min=1e-300)
    tail = torch.where(small / 2 < first, tail, torch.inf)
    terms = (2 * order + 1) + int(spans.lengths.max()) + 3 * small + 8
    weights = 4 * tail * small.exp() + slip + terms * eps * LEBESGUE * (2 * small).exp()
    relative = weights / (1 - weights).clamp(min=1e-300)
    bound = relative + 2 * (len(spans.starts) + 16) * eps
    return torch.where((weights < 0.5) & (radius < 60), bound, torch.inf)


@dataclass(frozen=True)
class Evenly:
    """Rotations of blocks as a whole, one for each end that blocks are aligned by: both if they are of unequal length.

    turnings  (F, t) each, which turn tokens to angle 0 of the first or last token of their block
    places    (F, m) each, angles of those tokens
    """

    turnings: list[Tensor]
    places: list[Tensor]


def _evenly(turns: Tensor, frequencies: Tensor, spans: Spans) -> Evenly:
    lengths, moving = spans.lengths, _tokens(spans)
    size = turns.abs().amax(-1)[:, None]
    equal = bool((lengths == lengths[0]).all())
    ends = (spans.starts,) if equal else (spans.starts, spans.stops - 1)
    turnings = [size * torch.exp(1j * (moving - end.repeat_interleave(lengths)) * frequencies[:, None]) for end in ends]
    return Evenly(turnings, [turns[:, end].angle() for end in ends])


def _scores(
    content: Tensor, plane: Tensor, evenly: Evenly, spans: Spans, real: Real, order: int, dtype: torch.dtype
) -> Float[Tensor, "2 n"]:
    """Both scores of some planes of heads.

    A sum over pairs of `a_i x_ji + a_j x_ij` is one over all i and j of `a_j x_ij`. The diagonal, which is no swap, is known.
    """
    blocks = len(spans.starts)
    angles = 2 * math.pi / (2 * order + 1) * torch.arange(2 * order + 1, dtype=real.total.dtype, device=plane.device)
    ends = [
        (_of_blocks(content[:, _tokens(spans)] * turning[plane], angles, spans, dtype), _interpolation(at, angles).to(dtype))
        for turning, at in zip(evenly.turnings, evenly.places, strict=True)
    ]
    heavy, light, a = (x.to(dtype) for x in (real.heavy, real.light, real.weights))
    square, ones = a * a, torch.ones_like(a)
    step = max(1, AT_ONCE // blocks**2)
    scratch = [content.real.new_empty(step, blocks, blocks, dtype=dtype) for _ in range(3)]
    both = real.total.new_empty(2, len(content))
    for start in range(0, len(content), step):
        some = slice(start, start + step)
        values, norm, spare = (part[: len(plane[some])] for part in scratch)
        _placed([(one[some], at[plane[some]]) for one, at in ends], values, norm)
        norm.mul_(norm).addcmul_(values, values)
        norm.mul_(torch.add(square[some, :, None], square[some, None, :], out=spare)).rsqrt_().mul_(values)
        torch.mul(heavy[some, :, None], light[some, None, :], out=spare)
        torch.mul(light[some, :, None], heavy[some, None, :], out=values)
        norm.mul_(torch.maximum(spare, values, out=spare))
        sums = (torch.stack((ones[some], a[some]), 1) @ norm).to(both.dtype)
        both[0, some] = torch.linalg.vecdot(sums[:, 0], real.weights[some])
        both[1, some] = sums[:, 1].sum(-1)
    return ((both - real.same) / real.total).clamp_(max=1)


def _placed(ends: Sequence[tuple[Tensor, Tensor]], out: Tensor, exchanged: Tensor) -> None:
    """Writes weights of each block (rows) in the place of each (columns) into `out`, and their transpose into `exchanged`.

    A second product is faster than transposing the first.
    """
    values, at = ends[0]
    torch.bmm(values, at.mT, out=out)
    torch.bmm(at, values.mT, out=exchanged)
    if len(ends) > 1:
        # A block that moves back starts where the other started; one that moves on stops where the other stopped.
        values, at = ends[1]
        out.tril_(-1).add_(torch.bmm(values, at.mT).triu_())
        exchanged.triu_(1).add_(torch.bmm(at, values.mT).tril_())


def _of_blocks(content: Tensor, angles: Tensor, spans: Spans, dtype: torch.dtype) -> Float[Tensor, "n m K"]:
    """Mean weight, up to a factor, of each block at each angle."""
    basis, lengths = torch.stack((angles.cos(), angles.sin())).to(dtype), spans.lengths
    values = (torch.view_as_real(content).to(dtype) @ basis).exp_()
    if bool((lengths == lengths[0]).all()):
        values = _sum_of(values.unflatten(1, (len(lengths), -1)).unbind(2))
    else:
        owner = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
        values = values.new_zeros(len(content), len(lengths), len(angles)).index_add_(1, owner, values)
    return values.mul_((1 / lengths.to(dtype))[:, None])


def _sum_of(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, one by one: reducing an inner axis is slow."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _interpolation(at: Float[Tensor, "F m"], angles: Float[Tensor, " K"]) -> Float[Tensor, "F m K"]:
    """Coefficients that give a periodic function at angles `at` from its values at `angles`, which are evenly spaced."""
    # sin(K (x - y) / 2) / (K sin((x - y) / 2)), where K y / 2 is a multiple of pi.
    x, y, count = at[..., None] / 2, angles / 2, len(angles)
    above = (count * x).sin() * (count * y).cos().round()
    below = x.sin() * y.cos() - x.cos() * y.sin()
    near = below.abs() < 1e-8
    return torch.where(near, 1.0, above / below.masked_fill(near, 1).mul_(count))


def _chosen(factors: LogitFactors, some: Int[Tensor, " n"], plane: Int[Tensor, " n"]) -> LogitFactors:
    """The factors of some planes of some heads, in one axis."""
    place = factors.place.expand(len(factors.content), *factors.place.shape[1:])
    place = place.reshape(len(factors.content), -1, 2)[plane]
    return replace(factors, content=factors.content.flatten(0, -3)[some], place=place)
