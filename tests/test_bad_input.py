"""Bad input ends in a ValueError that names the argument and the fix.

Run it without `--shape-checks`: those checks would raise first.
"""

import math

import numpy as np
import pytest
import torch

import ropescope as rs

ROPE = rs.Rope(head_dim=4)
QUERY, KEYS = torch.randn(4), torch.randn(6, 4)
M = rs.counterfactual_logits(QUERY, KEYS, ROPE)


def with_value(x, index, value):
    x = x.clone()
    x[index] = value
    return x


CASES = {
    "wrong head size of keys": (lambda: rs.counterfactual_logits(QUERY, torch.randn(6, 5), ROPE), "keys must be .* d = 4"),
    "wrong head size of query": (lambda: rs.counterfactual_logits(torch.randn(3), KEYS, ROPE), "query must be .* d = 4"),
    "keys without a token axis": (lambda: rs.counterfactual_logits(QUERY, torch.randn(4), ROPE), "keys must be"),
    "batches that do not fit": (
        lambda: rs.counterfactual_logits(torch.randn(3, 4), torch.randn(2, 6, 4), ROPE),
        "query and keys must share their leading axes",
    ),
    "positions that do not fit": (
        lambda: rs.counterfactual_logits(torch.randn(3, 4), KEYS, ROPE, query_position=torch.tensor([3, 4])),
        "query_position and keys must share",
    ),
    "NaN in keys": (lambda: rs.counterfactual_logits(QUERY, with_value(KEYS, (2, 1), math.nan), ROPE), "keys holds NaN"),
    "infinite query": (lambda: rs.counterfactual_logits(with_value(QUERY, 1, math.inf), KEYS, ROPE), "query holds NaN or inf"),
    "query after the end": (
        lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, query_position=6),
        "query_position must be .*0 to 5",
    ),
    "query before the start": (
        lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, query_position=-1),
        "query_position must be",
    ),
    "query between positions": (
        lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, query_position=torch.tensor(2.5)),
        "query_position must be whole numbers",
    ),
    "negative soft-cap": (lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, soft_cap=-1.0), "soft_cap must be a positive"),
    "no window": (lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, window=0), "window must be a positive"),
    "scale of zero": (lambda: rs.counterfactual_logits(QUERY, KEYS, ROPE, scale=0.0), "scale must be a positive"),
    "M not square": (lambda: rs.swap_scores(M[:4]), "M must be .* as many contents as positions"),
    "M a vector": (lambda: rs.swap_scores(M[0]), "M must be"),
    "M of whole numbers": (lambda: rs.swap_scores(torch.ones(4, 4, dtype=torch.long)), "M must be"),
    "NaN in M": (lambda: rs.swap_scores(with_value(M, (1, 2), math.nan)), "M holds NaN"),
    "infinity in M": (lambda: rs.variance_shares(with_value(M, (1, 2), math.inf)), "M holds NaN or infinite"),
    "a hole in M": (lambda: rs.exclusion(with_value(M, (1, 2), -math.inf)), "whole columns of -inf"),
    "a hidden column in the middle": (lambda: rs.swap_scores(with_value(M, (slice(None), 2), -math.inf)), "whole columns"),
    "tau of zero": (lambda: rs.swap_scores(M, tau=0), "tau must be a positive number"),
    "negative tau": (lambda: rs.swap_scores(M, tau=[1e-4, -1]), "tau must be a positive number"),
    "NaN as tau": (lambda: rs.permutation_scores(M, tau=math.nan), "tau must be a positive number"),
    "no tau": (lambda: rs.swap_scores(M, tau=[]), "tau must be a positive number"),
    "overlapping blocks": (lambda: rs.swap_scores(M, blocks=[(0, 3), (2, 4)]), "blocks overlap at position 2"),
    "block past the query": (lambda: rs.swap_scores(M, blocks=[(0, 2), (3, 6)]), r"blocks: \(3, 6\) must be .* 0 to 5"),
    "block before the start": (lambda: rs.swap_scores(M, blocks=[(-1, 2), (3, 4)]), r"blocks: \(-1, 2\)"),
    "empty block": (lambda: rs.swap_scores(M, blocks=[(1, 1), (3, 4)]), r"blocks: \(1, 1\)"),
    "one block": (lambda: rs.swap_scores(M, blocks=[(1, 3)]), "blocks must hold at least 2"),
    "blocks that are not pairs": (lambda: rs.swap_scores(M, blocks=[(1, 2, 3), (3, 4)]), "blocks must be"),
    "one key": (lambda: rs.swap_scores(M[:2, :2]), "M holds 1 key before the query.* position 2 or later"),
    "no key": (lambda: rs.swap_scores(M[:1, :1]), "M holds 0 keys before the query.* position 2 or later"),
    "query before the second position": (
        lambda: rs.swap_scores(rs.counterfactual_logits(QUERY, KEYS, ROPE, query_position=1)),
        "query at position 2 or later",
    ),
    "window of two": (
        lambda: rs.swap_scores(rs.counterfactual_logits(QUERY, KEYS, ROPE, window=2)),
        "M holds 1 key before the query",
    ),
    "block outside the window": (
        lambda: rs.swap_scores(rs.counterfactual_logits(QUERY, KEYS, ROPE, window=4), blocks=[(1, 3), (3, 5)]),
        r"blocks: \(1, 3\) must be a range of positions from 2 to 5",
    ),
    "entropy of one key": (lambda: rs.entropy(M[:1, :1]), "M holds one key"),
    "no permutation": (lambda: rs.permutation_scores(M, 0), "permutations must be at least 1"),
    "not a permutation": (lambda: rs.permutation_scores(M, torch.tensor([[0, 1, 2, 2, 4]])), "permutations must be rows of 0"),
    "the identity": (lambda: rs.permutation_scores(M, torch.arange(5)[None]), "omit the identity"),
    "tolerance of one": (lambda: rs.bounded_swap_scores(rs.logit_factors(QUERY, KEYS, ROPE), tolerance=1), "tolerance must be"),
    "tau of zero, bounded": (lambda: rs.bounded_swap_scores(rs.logit_factors(QUERY, KEYS, ROPE), tau=0), "tau must be"),
    "one key, bounded": (lambda: rs.bounded_swap_scores(rs.logit_factors(QUERY, KEYS[:2], ROPE)), "M holds 1 key"),
    "blocks, bounded": (
        lambda: rs.bounded_swap_scores(rs.logit_factors(QUERY, KEYS, ROPE), blocks=[(0, 3), (2, 4)]),
        "blocks overlap",
    ),
    "rope of nothing": (rs.Rope, "head_dim or frequencies must be given"),
    "odd rotary_dim": (lambda: rs.Rope(head_dim=8, rotary_dim=3), "rotary_dim must be even"),
    "rotary_dim too large": (
        lambda: rs.Rope(head_dim=8, rotary_dim=10),
        "rotary_dim must be even and between 0 and head_dim = 8",
    ),
    "odd head": (lambda: rs.Rope(head_dim=7), "rotary_dim must be even"),
    "more frequencies than room": (lambda: rs.Rope(head_dim=4, frequencies=[1, 2, 3]), "rotary_dim must be even and between"),
    "rotary_dim and frequencies": (lambda: rs.Rope(rotary_dim=2, frequencies=[1, 2]), "omit rotary_dim"),
    "base of zero": (lambda: rs.Rope(head_dim=8, base=0), "base must be a positive number"),
    "NaN frequency": (lambda: rs.Rope(frequencies=[math.nan]), "frequencies must be finite"),
    "unknown pairing": (lambda: rs.Rope(head_dim=8, pairing="neox"), 'pairing must be "half" or "interleaved"'),
    "rotating the wrong size": (lambda: ROPE.rotate(torch.randn(3, 6), torch.arange(3)), "head_dim = 4"),
    "heads of no shape": (lambda: rs.Heads(QUERY, KEYS, ROPE, 1.0), "queries and keys must be"),
    "heads that cannot share keys": (
        lambda: rs.Heads(torch.randn(1, 3, 6, 4), torch.randn(1, 2, 6, 4), ROPE, 1.0),
        "queries has 3 heads, which 2 key heads cannot share",
    ),
    "gamma too large": (lambda: rs.purity(1.0, 0.0, gamma=0.5), "gamma must be"),
    "scores of different shapes": (lambda: rs.purity([1.0, 0.5], [0.0]), "positional and symbolic must have the same shape"),
    "steps that do not rise": (lambda: rs.purity_steps(np.ones((2, 3)), np.ones((2, 3)), [5, 5]), "steps must increase"),
    "one input": (lambda: rs.mean_interval([[1.0, 2.0]]), "values must hold at least 8 inputs"),
    "NaN among values": (lambda: rs.mean_interval([1.0] * 7 + [math.nan]), "values holds NaN"),
    "impossible level": (lambda: rs.mean_interval(range(8), level=95), "level must lie between 0 and 1"),
    "width that heads cannot share": (lambda: rs.GPTJConfig(vocab_size=5, width=10, heads=3), "width 10 must be a multiple"),
}


@pytest.mark.parametrize(("call", "says"), CASES.values(), ids=CASES)
def test_bad_input_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
