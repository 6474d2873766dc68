"""Gaps and their bounds: formulas against brute force, printed bounds against exact gaps."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ropescope as rs
from ropescope.studies.theory.run import bounds, longest_right
from ropescope.theory import (
    farthest,
    index_bound,
    index_bound_printed,
    index_gap,
    least_far,
    mean_bound,
    packing_bound,
    planes_bound,
    retrieval_bound_printed,
    retrieval_extremes,
    retrieval_least,
    search_planes,
    whole_root,
    worst_gap,
)

ROOT = Path(__file__).parents[1]
ANGLE, INTEGERS = 0.8, 16
VIOLATED = [*range(9, 16), *range(54, 72)]
"""Lengths up to 100 at which the bound of Index as printed is too small."""
angles = st.floats(-7, 7, allow_subnormal=False)


def gap_of(logits) -> float:
    return float(rs.gap(torch.tensor(logits, dtype=torch.float64)))


# The measures


def test_gap_and_margin_by_hand():
    hidden = -math.inf
    logits = torch.tensor([[1.0, 4.0, 2.5], [3.0, 3.0, 1.0], [hidden, 2.0, hidden], [hidden, 1.0, 5.0]])
    assert rs.gap(logits).tolist() == [1.5, 0, math.inf, 4]
    assert rs.margin(logits, 1).tolist() == [1.5, 0, math.inf, -4]
    assert rs.margin(logits, torch.tensor([0, 2, 0, 2])).tolist() == [-3, -2, hidden, 4]
    assert rs.gap(torch.tensor([2.0])) == math.inf
    assert rs.gap(logits).dtype == torch.float64


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rs.gap(torch.tensor([1.0, math.nan])), "NaN or inf"),
        (lambda: rs.gap(torch.tensor([1.0, math.inf])), "NaN or inf"),
        (lambda: rs.gap(torch.full((2, 3), -math.inf)), "sees no key"),
        (lambda: rs.gap(torch.zeros(3, 0)), "at least one key"),
        (lambda: rs.margin(torch.zeros(3), 3), "right must be positions of keys"),
        (lambda: rs.margin(torch.zeros(3), -1), "right must be positions of keys"),
    ],
)
def test_bad_logits_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# Index


@given(st.integers(2, 300), angles, st.data())
def test_the_gap_of_index_is_that_of_its_logits_and_obeys_the_corrected_bound(length, angle, data):
    back = data.draw(st.integers(0, length - 1))
    logits = np.cos((np.arange(length) - back) * angle)
    gap = index_gap(length, back, angle)
    assert gap == pytest.approx(gap_of(logits), abs=1e-12)
    assert gap <= index_bound(length, back, angle) * (1 + 1e-9) + 1e-15
    assert gap <= 8 * math.pi**2 / (length + 1) ** 2 * (1 + 1e-9)
    if back == 0:
        assert gap <= index_bound_printed(length, angle) * (1 + 1e-9) + 1e-15


@given(st.integers(2, 300))
def test_the_corrected_bound_cannot_be_sharper_than_evenly_spaced_points(length):
    gap = index_gap(length, 0, 2 * math.pi / length)
    assert gap == pytest.approx(1 - math.cos(2 * math.pi / length), rel=1e-6)
    assert index_bound(length, 0, 2 * math.pi / length) / gap <= (math.pi**2 / 4 if length < 10 else 1.04)


def test_the_printed_bound_of_index_is_violated_at_exactly_25_lengths():
    found = [
        length
        for length in range(2, 101)
        if max(index_gap(length, back, ANGLE) for back in range(min(INTEGERS, length - 1) + 1))
        > index_bound_printed(length, ANGLE) * (1 + 1e-9)
    ]
    assert found == VIOLATED
    assert len(found) == 25
    assert index_gap(14, 6, ANGLE) == pytest.approx(0.2244, abs=5e-5)
    assert index_bound_printed(14, ANGLE) == pytest.approx(0.1007, abs=5e-5)


@given(st.integers(2, 80), st.integers(1, 80))
def test_the_query_that_sees_least_far(length, integers):
    assert least_far(length, integers) == min(farthest(length, back) for back in range(min(integers, length - 1) + 1))


def test_values_of_figure_5a():
    assert index_bound_printed(2, ANGLE) == pytest.approx(0.3033, abs=5e-5)
    assert index_bound_printed(8, ANGLE) == index_bound_printed(2, ANGLE)
    for length in range(9, 101):
        assert index_bound_printed(length, ANGLE) == 2 * math.pi**2 / length**2
    assert retrieval_bound_printed(100, 0.0027, 8) == pytest.approx(0.130, abs=5e-3)
    assert retrieval_bound_printed(2, 0.0027, 8) == pytest.approx(0.29, abs=5e-3)


def test_degenerate_inputs_of_index():
    assert index_gap(2, 0, ANGLE) == index_gap(2, 1, ANGLE) == pytest.approx(1 - math.cos(ANGLE))
    assert index_gap(9, 3, 0.0) == 0 == index_bound(9, 3, 0.0)
    with pytest.raises(ValueError, match="back must lie between 0 and 4"):
        index_gap(5, 5, ANGLE)
    with pytest.raises(ValueError, match="length must be at least 2"):
        index_gap(1, 0, ANGLE)


# Retrieval


def every_margin(length: int, angle: float, alphabet: int) -> np.ndarray:
    """Of the right key over all inputs in which one key has the letter sought (0), by trying them."""
    letters = np.array(list(product(range(alphabet), repeat=length)))
    letters = letters[(letters == 0).sum(1) == 1]
    logits = np.cos(letters * (2 * math.pi / alphabet) + np.arange(length) * angle)
    return rs.margin(torch.from_numpy(logits), torch.from_numpy((letters == 0).argmax(1))).numpy()


@given(st.integers(2, 4), st.integers(2, 6), st.floats(0, 1))
def test_the_smallest_gap_of_retrieval_is_the_formula(alphabet, length, share):
    angle = share * 2 * math.pi / alphabet / (2 * length - 3)
    margins = every_margin(length, angle, alphabet)
    assert retrieval_least(length, angle, alphabet) == pytest.approx(margins.min(), abs=1e-12)
    omega = 2 * math.pi / alphabet
    as_difference = math.cos((length - 2) * angle) - math.cos(omega - (length - 1) * angle)
    assert as_difference == pytest.approx(margins.min(), abs=1e-12)


@given(st.integers(2, 4), st.integers(2, 6), angles)
def test_extremes_of_retrieval_are_those_of_all_inputs_at_any_angle(alphabet, longest, angle):
    least, most = retrieval_extremes(longest, angle, alphabet)
    for length in range(2, longest + 1):
        margins = every_margin(length, angle, alphabet)
        assert least[length - 2] == pytest.approx(margins.min(), abs=1e-12)
        assert most[length - 2] == pytest.approx(margins.max(), abs=1e-12)


def test_what_is_said_of_the_printed_bound_of_retrieval():
    least, most = retrieval_extremes(200, 0.0027, 8)
    printed = np.array([retrieval_bound_printed(n, 0.0027, 8) for n in range(2, 101)])
    assert (most[:99] > 1.96).all()
    assert (2 + np.flatnonzero(least[:99] > printed)).tolist() == list(range(2, 25))
    assert least[15] == pytest.approx(0.2622, abs=5e-5)
    assert least[98] == pytest.approx(0.0964, abs=5e-5)
    assert longest_right(0.0027, 8) == 146 == np.flatnonzero(least > 0).max() + 2
    assert retrieval_least(3, 0.0, 8) == retrieval_least(10_000, 0.0, 8) == pytest.approx(1 - math.cos(math.pi / 4))


def test_without_queries_that_look_at_themselves_two_tokens_are_farther_apart():
    angle, omega = 0.1, math.pi / 4
    letters = np.arange(1, 8)  # of the query itself; the other key is the right one
    others = np.cos(letters * omega)
    assert (math.cos(angle) - others).min() == pytest.approx(math.cos(angle) - math.cos(omega))
    assert retrieval_least(2, angle, 8) < math.cos(angle) - math.cos(omega)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((1, 0.0, 8), "length must be"), ((5, 0.0, 1), "alphabet must be"), ((5, 0.2, 8), "angle must"), ((5, -0.1, 8), "angle")],
)
def test_retrieval_where_the_formula_does_not_hold(arguments, says):
    with pytest.raises(ValueError, match=says):
        retrieval_least(*arguments)


# Several planes


@given(st.integers(1, 4), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_no_plane_set_exceeds_a_bound(planes, offsets, seed):
    rng = np.random.default_rng(seed)
    sets = np.concatenate(
        (rng.uniform(0, 7, (40, planes)), 2 * math.pi * rng.integers(0, offsets + 1, (40, planes)) / (offsets + 1))
    )
    worst = worst_gap(sets, offsets).max() * (1 - 1e-9)
    assert worst <= planes_bound(planes, offsets)
    assert worst <= mean_bound(planes, offsets)
    if planes < 4:
        assert worst <= packing_bound(planes, offsets)


@given(st.integers(1, 3), st.integers(1, 2500), st.integers(0, 2**32 - 1))
def test_the_worst_gap_is_the_smallest_over_distances(planes, offsets, seed):
    angle = np.random.default_rng(seed).uniform(0, 7, planes)
    brute = (1 - np.cos(np.arange(1, offsets + 1)[:, None] * angle)).sum(1).min()
    assert float(worst_gap(angle[None], offsets)[0]) == pytest.approx(brute, abs=1e-10)


@given(st.integers(1, 10**6), st.integers(1, 5))
def test_whole_roots(number, degree):
    root = whole_root(number, degree)
    assert root**degree <= number < (root + 1) ** degree


def test_whole_roots_of_powers():
    assert [whole_root(1000, 3), whole_root(999, 3), whole_root(10**4, 4)] == [10, 9, 10]


def test_search_finds_what_the_random_one_does_and_repeats():
    for planes, at_least in ((1, 1.9e-5), (2, 0.017), (3, 0.15)):
        found = search_planes(planes, 1000, 500, seed=0)
        assert found.gap >= at_least
        again = search_planes(planes, 1000, 500, seed=0)
        assert (found.angles == again.angles).all()
        assert found.gap == pytest.approx(float(worst_gap(found.angles[None], 1000)[0]))
        assert found.gap >= search_planes(planes, 1000, 100, seed=1, lattice=False).gap * 0.9
    one = search_planes(1, 1000, 1, seed=0)
    assert one.gap == pytest.approx(1 - math.cos(2 * math.pi / 1001), rel=1e-6)
    with pytest.raises(ValueError, match="planes must be 1, 2 or 3"):
        packing_bound(4, 100)


# The recorded run


@pytest.fixture(scope="module")
def recorded():
    return json.loads((ROOT / "results" / "theory" / "summary.json").read_text())["results"]


def test_the_recorded_bounds_are_those_of_today(recorded):
    now = bounds(recorded["bounds"]["longest"])
    assert now.keys() == recorded["bounds"].keys()
    assert now["index_printed_violated_up_to_100"] == recorded["bounds"]["index_printed_violated_up_to_100"] == VIOLATED
    for length, row in now["table"].items():
        assert row == pytest.approx(recorded["bounds"]["table"][length], rel=1e-9)


def test_the_tables_of_the_page_are_those_of_the_recorded_run(recorded):
    page = (ROOT / "docs" / "theory.md").read_text()
    columns = ("index_printed", "index_corrected", "index_largest", "index_smallest")
    columns += ("retrieval_printed", "retrieval_smallest", "retrieval_largest")
    for length, row in recorded["bounds"]["table"].items():
        cells = f"| {length} | " + " | ".join(f"{row[column]:.4f}" for column in columns) + " |"
        assert cells in page, cells
    for row in recorded["planes"]["rows"]:
        if row["offsets"] == 1000:
            packing = f"{row['packing']:.3g}" if "packing" in row else "-"
            found = f"{row['gap']:.3g} | {row['uniform_angles_gap']:.3g}"
            cells = f"| {row['planes']} | {found} | {packing} | {row['pigeonhole']:.3g} |"
            assert cells in page, cells
    small, random = recorded["every_input"], recorded["random_inputs"]
    for number in (small["inputs"], small["valid"], random["index"]["positions"], random["retrieval"]["positions"]):
        assert f"{number:,}" in page, number
    assert all(part["wrong"] == 0 for part in (small, *random.values()))
    for name in ("index", "retrieval", "retrieval, angle 0"):
        assert f"{random[name]['beta']:.1f}" in page
    assert recorded["planes"]["above_a_bound"] == 0
