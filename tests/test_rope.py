import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ropescope as rs

ropes = st.builds(
    lambda planes, still, pairing, base: rs.Rope(2 * planes + still, base, 2 * planes, pairing),
    st.integers(0, 5),
    st.integers(1, 4),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from([10.0, 1e4, 1e6]),
)


@given(ropes, st.integers(0, 100_000))
def test_rotation_is_undone_and_keeps_length(rope, position):
    x = torch.randn(3, 5, rope.head_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(5) + position
    turned = rope.rotate(x, positions)
    torch.testing.assert_close(rope.unrotate(turned, positions), x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[..., rope.rotary_dim :], x[..., rope.rotary_dim :], atol=0, rtol=0)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rotation_by_hand(pairing):
    rope = rs.Rope(frequencies=[1.0, 0.5], pairing=pairing)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    pairs = [(0, 2), (1, 3)] if pairing == "half" else [(0, 1), (2, 3)]
    expected = np.zeros(4)
    for (a, b), angle in zip(pairs, (3.0, 1.5), strict=True):
        expected[a] = x[a] * np.cos(angle) - x[b] * np.sin(angle)
        expected[b] = x[a] * np.sin(angle) + x[b] * np.cos(angle)
    np.testing.assert_allclose(rope.rotate(x, 3), expected, atol=1e-15)


def test_positions_may_be_any_numbers_and_broadcast():
    rope = rs.Rope(head_dim=4)
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    positions = torch.tensor([[0.5, -7.0, 1e6], [1.0, 2.0, 3.0]])
    turned = rope.rotate(x, positions)
    for b in range(2):
        for t in range(3):
            torch.testing.assert_close(turned[b, t], rope.rotate(x[b, t], positions[b, t].item()))


def test_frequencies_of_a_base():
    rope = rs.Rope(head_dim=128)  # ids 1, 2, 10 and 42 of paper B
    assert rope.frequencies[0] == 1
    assert [round(rope.frequencies[k - 1], n) for k, n in ((2, 3), (10, 4), (42, 4))] == [0.866, 0.2738, 0.0027]
    assert rs.Rope(head_dim=8, base=1e6).frequencies == pytest.approx([1, 1e6**-0.25, 1e6**-0.5, 1e6**-0.75])


def test_what_never_turns_is_one_last_plane():
    assert rs.Rope(head_dim=8, rotary_dim=4, base=100.0).plane_frequencies == pytest.approx((1.0, 0.1, 0.0))
    assert rs.Rope(head_dim=8).plane_frequencies == rs.Rope(head_dim=8).frequencies
    assert rs.Rope(head_dim=8, rotary_dim=0).plane_frequencies == (0.0,)


def test_planes_can_be_chosen_and_stopped():
    rope = rs.Rope(head_dim=8)
    slow_stopped = dataclasses.replace(rope, frequencies=(*rope.frequencies[:2], 0.0, 0.0))
    assert slow_stopped.rotary_dim == 8
    assert slow_stopped.pairing == rope.pairing
    assert slow_stopped != rope
    assert hash(slow_stopped) == hash(rs.Rope(frequencies=slow_stopped.frequencies))


def test_half_precision_comes_back_in_its_own_type():
    rope = rs.Rope(head_dim=8)
    x = torch.randn(5, 8)
    turned = rope.rotate(x.bfloat16(), torch.arange(5))
    assert turned.dtype == torch.bfloat16
    torch.testing.assert_close(turned.float(), rope.rotate(x, torch.arange(5)), atol=0.05, rtol=0.05)
