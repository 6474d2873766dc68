"""Swap scores in fifty digits, straight from their definition: the reference where double precision rounds too much."""

import itertools

import mpmath
import torch

import ropescope as rs


def precise_scores(factors: rs.LogitFactors, tau: float, blocks=None) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Positional and symbolic score of one head, from its factors taken as exact numbers; blocks must be of equal length."""
    with mpmath.workdps(50):
        content, place = (mpmath.matrix(x.tolist()) for x in (factors.content, factors.place))
        tokens, rank = content.rows, content.cols
        bias = [mpmath.mpf(0)] * tokens if factors.bias is None else [mpmath.mpf(b) for b in factors.bias.tolist()]
        cap = factors.soft_cap

        def logit(c: int, p: int) -> mpmath.mpf:
            raw = mpmath.fsum(content[c, k] * place[p, k] for k in range(rank))
            return (raw if cap is None else cap * mpmath.tanh(raw / cap)) + bias[p]

        first = 0 if factors.visible is None else int(factors.visible.to(torch.uint8).argmax())
        spans = blocks or [(p, p + 1) for p in range(first, tokens - 1)]
        total = mpmath.fsum(mpmath.exp(logit(p, p)) for p in range(first, tokens))
        length = spans[0][1] - spans[0][0]

        def weight(block: int, slot: int) -> mpmath.mpf:
            pairs = zip(range(*spans[block]), range(*spans[slot]), strict=True)
            return mpmath.fsum(mpmath.exp(logit(c, p)) for c, p in pairs) / length / total

        sums = [mpmath.mpf(0)] * 3
        before = [weight(n, n) for n in range(len(spans))]
        widest = max(before) - min(before)
        for i, j in itertools.combinations(range(len(spans)), 2):
            one, other = weight(j, i), weight(i, j)
            alpha = mpmath.exp((abs(before[i] - before[j]) - widest) / mpmath.mpf(tau))
            norm = mpmath.hypot(before[i], before[j]) * mpmath.hypot(one, other)
            for n, part in enumerate(
                (1, (one * before[i] + other * before[j]) / norm, (one * before[j] + other * before[i]) / norm)
            ):
                sums[n] += alpha * part
        return sums[1] / sums[0], sums[2] / sums[0]
