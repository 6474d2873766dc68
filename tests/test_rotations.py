"""Fitted rotations: exact where they can be, against rotations that are known; and what is said about those that depart."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropescope.rope import Rope
from ropescope.rotations import Claim, agreement, anchored, departures, fit_rotation, name_scaling
from ropescope.rotations.positions import rounded
from ropescope.rotations.scaling import plain

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
LAYOUTS = [
    {"head_dim": 64},
    {"head_dim": 64, "rotary_dim": 16},
    {"head_dim": 64, "base": 1e6, "pairing": "interleaved"},
    {"head_dim": 80, "rotary_dim": 32, "pairing": "interleaved"},
    {"head_dim": 128, "base": 5e5},
]


def equal_keys(rope, tokens=64, heads=2, dtype=torch.float64, positions=None, seed=0):
    """Rotated keys of equal tokens, computed in float64 and rounded once."""
    one = torch.randn(heads, 1, rope.head_dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    places = torch.arange(tokens) if positions is None else torch.tensor(positions)
    keys = rope.rotate(one.to(dtype).double().expand(heads, len(places), -1), places)
    return keys.to(dtype).double().numpy()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_rotated_keys_of_equal_tokens_give_pairing_and_frequencies(layout, dtype):
    rope = Rope(**layout)
    found = fit_rotation(equal_keys(rope, dtype=dtype), noise=UNITS[dtype])
    count = len(rope.frequencies)
    assert found.pairing == rope.pairing
    assert found.planes.count == (count if rope.pairing == "half" else rope.head_dim // 2)
    assert found.linear
    assert np.abs(found.frequencies[:count] - rope.frequencies).max() < 40 * max(UNITS[dtype], 1e-13) / 64
    assert (np.abs(found.frequencies[:count] - rope.frequencies) <= 8 * found.errors[:count]).all()
    assert found.factor is None  # a factor on all keys does not show


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_vectors_before_and_after_give_offset_and_factor_too(layout):
    rope = Rope(**layout)
    before = torch.randn(3, 48, rope.head_dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    after = 1.25 * rope.rotate(before, torch.arange(48) + 3)
    after[..., rope.rotary_dim :] /= 1.25  # the factor is on what turns alone
    found = fit_rotation(after.numpy(), before.numpy(), noise=1e-12)
    assert (found.pairing, found.offset) == (rope.pairing, 3.0)
    turning = found.turning
    assert np.abs(found.frequencies[turning] - np.array(rope.frequencies)[: turning.sum()]).max() < 1e-10
    if rope.rotary_dim == rope.head_dim:
        assert found.factor == pytest.approx(1.25)


@settings(max_examples=25, deadline=None)
@given(
    planes=st.integers(3, 24),
    base=st.floats(20, 1e6),
    pairing=st.sampled_from(["half", "interleaved"]),
    backwards=st.booleans(),
    rest=st.integers(0, 8),
    seed=st.integers(0, 1000),
)
def test_any_rotation_is_found_from_any_vectors(planes, base, pairing, backwards, rest, seed):
    """Random partial rotations in either direction; the oracle is the rotation itself."""
    rates = (-1 if backwards else 1) * plain(base, planes)
    rope = Rope(2 * planes + 2 * rest, pairing=pairing, frequencies=rates)
    found = fit_rotation(equal_keys(rope, seed=seed), noise=1e-13)
    assert found.pairing == pairing or planes == 1
    assert np.abs(found.frequencies[:planes] - rates).max() < 1e-9
    assert not found.turning[planes:].any()


def test_far_positions_refine_frequencies():
    rope = Rope(64, base=1e6)
    places = [*range(32), *(int(p) for p in np.geomspace(32, 30_000, 32))]
    near, far = (
        fit_rotation(equal_keys(rope, dtype=torch.bfloat16, positions=p), None, p, 2.0**-8) for p in (list(range(64)), places)
    )
    assert near.linear
    assert far.linear
    assert np.abs(far.frequencies - rope.frequencies).max() < 0.02 * np.abs(near.frequencies - rope.frequencies).max()
    assert far.turning.sum() > near.turning.sum()


def test_tokens_that_repeat_show_the_rotation_of_the_first_layer():
    rope, ids = Rope(32), np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7])
    contents = torch.randn(10, 2, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    keys = rope.rotate(contents[ids].transpose(0, 1), torch.arange(len(ids))).numpy()
    found = fit_rotation(keys, tokens=ids, noise=1e-13)
    assert found.pairing == "half"
    assert np.abs(found.frequencies - rope.frequencies).max() < 1e-10
    with pytest.raises(ValueError, match="repeat at least 4 times"):
        fit_rotation(keys[:, :6], tokens=np.arange(6))


def test_keys_that_do_not_rotate():
    keys = equal_keys(Rope(16, rotary_dim=0))
    found = fit_rotation(keys)
    assert (found.pairing, len(found.frequencies)) == ("none", 0)
    assert departures(found, Claim(np.zeros(0))) == []
    assert departures(found, Claim(plain(1e4, 8), "half"))[0].what == "rotation"


SCALED = {
    "linear": {"factor": 4.0, "rope_theta": 1e4},
    "llama3": {
        "factor": 8.0,
        "rope_theta": 5e5,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"factor": 4.0, "rope_theta": 1e6, "original_max_position_embeddings": 32768},
}


@pytest.mark.parametrize("name", SCALED)
def test_scalings_are_named_with_their_constants(name):
    config = LlamaConfig(
        hidden_size=4096,
        num_attention_heads=32,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": name, **SCALED[name]},
    )
    rates = ROPE_INIT_FUNCTIONS[name](config, "cpu")[0].double().numpy()
    found = name_scaling(rates, np.full(64, 1e-10))
    wanted = {"base" if key == "rope_theta" else key: value for key, value in SCALED[name].items()}
    assert found.name == name
    for key, value in found.constants.items():
        if key in wanted:
            assert value == pytest.approx(wanted[key], rel=1e-3), key
    if name == "yarn":  # floor and ceiling of where planes turn 32 times and once in the original length
        turns = [64 * np.log(32768 / (beta * 2 * np.pi)) / np.log(1e6) for beta in (32, 1)]
        assert found.constants["first_plane"] == pytest.approx(np.floor(turns[0]), abs=1e-3)
        assert found.constants["last_plane"] == pytest.approx(np.ceil(turns[1]), abs=1e-3)
    assert name_scaling(plain(1e4, 64), np.full(64, 1e-10)).name == "none"
    strange = plain(1e4, 64) * (1 + 0.2 * np.sin(np.arange(64)))
    assert name_scaling(strange, np.full(64, 1e-10)).name == "unknown"


CLAIM = Claim(plain(1e4, 32), "half", 0, 1.0, "default", {"base": 1e4})


def _faults():
    places = np.arange(64.0)
    angles = np.outer(places, CLAIM.frequencies)
    return {
        "backwards": -angles,
        "base is 500000": np.outer(places, plain(5e5, 32)),
        "start again at 0 every 32": np.outer(places % 32, CLAIM.frequencies),
        "stop growing at 40": np.outer(np.minimum(places, 40), CLAIM.frequencies),
        "angles are computed in float16": rounded(np.outer(places, rounded(CLAIM.frequencies, "float16")), "float16"),
        "frequencies are rounded to bfloat16": np.outer(places, rounded(CLAIM.frequencies, "bfloat16")),
        "reverse order": angles[:, ::-1],
        "next plane": np.append(angles[:, 1:], np.zeros((64, 1)), 1),
        "computed for 128 dimensions": np.outer(places, 1e4 ** (-np.arange(32) / 64)),
        "0.3 times those claimed": 0.3 * angles,
        "same position number": np.outer(places // 3, CLAIM.frequencies),
    }


@pytest.mark.parametrize("said", _faults())
def test_causes_are_named(said):
    turns = np.exp(1j * _faults()[said])
    one = np.random.default_rng(0).normal(size=(2, 1, 32)) + 1j * np.random.default_rng(1).normal(size=(2, 1, 32))
    keys = one * turns
    found = departures(fit_rotation(np.concatenate([keys.real, keys.imag], -1), prefer=CLAIM.planes), CLAIM)
    assert len(found) == 1
    assert said in found[0].cause
    assert found[0].position is not None


def test_the_place_where_angles_part():
    """Position numbers in bfloat16 are right up to 256."""
    places = np.array([*range(16), 100, 200, 255, 256, 257, 300, 301, 511, 513, 1001, 1999])
    one = np.random.default_rng(0).normal(size=(2, 1, 32)) + 1j
    keys = one * np.exp(1j * np.outer(rounded(places.astype(float), "bfloat16"), CLAIM.frequencies))
    (found,) = departures(fit_rotation(np.concatenate([keys.real, keys.imag], -1), None, places, 2.0**-24, CLAIM.planes), CLAIM)
    assert (found.what, found.position) == ("precision", 257.0)
    assert found.cause == "position numbers are rounded to bfloat16"


def test_queries_and_keys_that_disagree():
    rope, other = Rope(64), Rope(64, base=2e4)
    before = torch.randn(2, 64, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def rotation(rope, shift):
        after = rope.rotate(before[:, None].expand(2, 64, 64), torch.arange(64) + shift).numpy()
        return anchored(fit_rotation(after, noise=1e-12), after, before.numpy())

    assert agreement(rotation(rope, 0), rotation(rope, 0)) == []
    assert "number 1 for queries and 0 for keys" in agreement(rotation(rope, 1), rotation(rope, 0))[0].cause
    assert "queries turn by" in agreement(rotation(other, 0), rotation(rope, 0))[0].cause
    assert agreement(rotation(rope, 2), rotation(rope, 2)) == []  # where counting starts does not matter


@pytest.mark.parametrize("wrong", [{"after": np.zeros((2, 3, 8))}, {"positions": [0, 1]}, {"before": np.zeros((1, 8, 8))}])
def test_shapes_are_checked(wrong):
    with pytest.raises(ValueError, match="must"):
        fit_rotation(**({"after": np.ones((2, 8, 8))} | wrong))


@pytest.mark.parametrize("mirrored", [False, True], ids=["right", "wrong sign of a sine"])
@pytest.mark.parametrize("size", [30.0, 100.0, 300.0])
def test_rounding_of_large_slow_planes_is_no_departure(size, mirrored):
    """As in SmolLM2 in bfloat16: numbers of slow planes are so large that they move by less than their rounding."""
    rates = np.array(Rope(head_dim=64, base=1e5).frequencies)
    one = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for times, plane in enumerate((16, 18, 20, 22, 24), 1):
        one[..., plane], one[..., 32 + plane] = size * times, 0.0
    angles = torch.arange(64.0, dtype=torch.float64)[:, None] * torch.tensor(rates)
    a, b, cos, sin = (x.bfloat16() for x in (one[..., :32], one[..., 32:], angles.cos(), angles.sin()))
    keys = torch.cat((a * cos - b * sin, b * cos + (-1 if mirrored else 1) * a * sin), -1).double().numpy()
    claim = Claim(rates, "half")
    found = fit_rotation(keys, noise=UNITS[torch.bfloat16], prefer=claim.planes)
    said = [each.cause for each in departures(found, claim)]
    assert [text.split(":")[0] for text in said] == (["it is no rotation"] if mirrored else [])
