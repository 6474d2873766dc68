"""What is said of a profile is what it holds: checked against numbers worked out by hand, and where there is no trend."""

import json
from math import sqrt

import numpy as np
import pytest
from profiles import RARELY_SCORED, UNROTATED, UNSCORED, make_profile

from ropescope.measures.intervals import mean_interval
from ropescope.measures.purity import head_kinds
from ropescope.studies.profile.statistics import agreement, plane_bands, plane_means, related, statistics

POSITIONAL = np.array([[0.9, 0.8], [0.85, 0.7], [0.5, 0.6], [0.2, 0.4]])
SYMBOLIC = np.array([[0.1, 0.3], [0.2, 0.25], [0.6, 0.5], [0.9, 0.7]])


@pytest.fixture(scope="module")
def planted():
    dataset = make_profile(trend=True)
    return dataset, statistics(dataset)


@pytest.fixture(scope="module")
def null():
    return statistics(make_profile(trend=False))


@pytest.fixture
def small():
    """Four layers of two heads, three inputs whose scores differ by 0.01, four planes."""
    dataset = make_profile(inputs=3, layers=4, heads=2, planes=4).assign_coords(layer=[1, 3, 5, 7])
    offsets = np.array([-0.01, 0.0, 0.01])[:, None, None]
    dataset["positional"].values[:] = POSITIONAL + offsets
    dataset["symbolic"].values[:] = SYMBOLIC - offsets
    return dataset


def pearson_by_hand(xs, ys):
    xs, ys = list(xs), list(ys)
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    product = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return product / sqrt(sum((a - x) ** 2 for a in xs) * sum((b - y) ** 2 for b in ys))


def test_correlation_of_scores(small):
    found = statistics(small)["correlation"]
    assert found["heads"] == 8
    assert found["pearson"]["r"] == pytest.approx(pearson_by_hand(POSITIONAL.ravel(), SYMBOLIC.ravel()))
    # Ranks of positional: 8 6 7 5 3 4 1 2; of symbolic: 1 4 2 3 6 5 8 7. Their squared differences sum to 166.
    assert found["spearman"]["r"] == pytest.approx(1 - 6 * 166 / 504)
    # Half of what the ranks of a layer's two heads differ by.
    half, other = np.array([1, 1, -0.5, -0.5]), np.array([-1.5, -0.5, 0.5, 0.5])
    assert found["within_layers"]["r"] == pytest.approx((half @ other) / sqrt((half @ half) * (other @ other)))
    assert found["within_layers"]["p_value"] is None  # four layers are too few


def test_noise_is_set_beside_the_correlation(small):
    small = small.drop_vars(["positional_redrawn", "symbolic_redrawn"])
    assert statistics(small)["noise"] is None  # as in a profile of an earlier version
    draws = np.random.default_rng(0)
    tables = draws.uniform(size=(2, 20, 4, 2))
    for name, table in zip(("positional", "symbolic"), tables, strict=True):
        noise = np.stack([table - 0.1, table, table + 0.1])  # three inputs whose mean is the table
        small[f"{name}_redrawn"] = (("input", "draw", "layer", "head"), noise)
    found = statistics(small)["noise"]
    by_hand = [pearson_by_hand(a.ravel(), b.ravel()) for a, b in zip(*tables, strict=True)]
    assert found["r"] == pytest.approx(by_hand)
    ours = pearson_by_hand(POSITIONAL.ravel(), SYMBOLIC.ravel())
    assert found["p_value"] == (1 + sum(r <= ours for r in by_hand)) / 21


def test_missing_heads_are_left_out():
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(6, 3)), draws.normal(size=(6, 3))
    y[2, 1] = x[4, 0] = np.nan
    both = np.isfinite(x) & np.isfinite(y)
    found = related(x, y)
    assert found["heads"] == 16
    assert found["pearson"]["r"] == pytest.approx(pearson_by_hand(x[both], y[both]))
    assert related(x, np.full((6, 3), 0.3)) is None
    assert related(x, np.full((6, 3), np.nan)) is None


def test_depth(small):
    depth = statistics(small)["depth"]
    # Sorted, the halves are 0.7 0.8 0.85 0.9 and 0.2 0.4 0.5 0.6: middles of 0.825 and 0.45.
    assert (depth["positional"]["first"], depth["positional"]["second"]) == pytest.approx((0.825, 0.45))
    assert (depth["symbolic"]["first"], depth["symbolic"]["second"]) == pytest.approx((0.225, 0.65))
    assert depth["positional"]["by_layer"] == pytest.approx([0.85, 0.775, 0.55, 0.3])
    for found in depth.values():
        assert (found["prompts_with_trend"], found["prompts"]) == (3, 3)
    # Layers 1 to 7 have mean ranks 1.5, 3.5, 5.5, 7.5 against the ranks of positional.
    against = pearson_by_hand([1.5, 1.5, 3.5, 3.5, 5.5, 5.5, 7.5, 7.5], [8, 6, 7, 5, 3, 4, 1, 2])
    assert depth["positional"]["with_layer"] == pytest.approx(against)


def test_depth_the_other_way_round_is_no_trend(small):
    turned = small.copy(deep=True)
    for name in ("positional", "symbolic"):
        turned[name].values[:] = small[name].values[:, ::-1]
    for found in statistics(turned)["depth"].values():
        assert found["prompts_with_trend"] == 0


def test_middle_layer_belongs_to_no_half(small):
    found = statistics(small.isel(layer=[0, 1, 2]))["depth"]["positional"]
    assert (found["first"], found["second"]) == pytest.approx((0.85, 0.55))
    assert statistics(small.isel(layer=[0]))["depth"]["positional"] is None


def test_head_means(small):
    heads = statistics(small)["heads"]
    assert np.array(heads["positional"]["mean"]) == pytest.approx(POSITIONAL)
    assert np.array(heads["difference"]["mean"]) == pytest.approx(SYMBOLIC - POSITIONAL)
    assert heads["positional"]["low"] == [[None] * 2] * 4  # three inputs are too few for an interval


def test_intervals_of_heads_are_over_inputs():
    dataset = make_profile(inputs=12, layers=4, heads=2, planes=4)
    heads = statistics(dataset)["heads"]
    for name in ("positional", "symbolic"):
        _, low, high = mean_interval(dataset[name].values)
        assert np.array(heads[name]["low"]) == pytest.approx(np.clip(low, 0, 1))
        assert np.array(heads[name]["high"]) == pytest.approx(np.clip(high, 0, 1))
    _, low, _ = mean_interval((dataset["symbolic"] - dataset["positional"]).values)
    assert np.array(heads["difference"]["low"]) == pytest.approx(low)


def test_heads_without_scores(planted):
    dataset, stats = planted
    n, m = UNSCORED
    assert stats["heads"]["positional"]["mean"][n][m] is None
    assert (stats["kind"][n][m], stats["kinds"]["unscored"]) == ("unscored", 1)
    n, m = RARELY_SCORED
    found = [stats["heads"]["positional"][end][n][m] for end in ("mean", "low", "high")]
    assert found == [pytest.approx(dataset["positional"].values[:5, n, m].mean()), None, None]
    assert sum(stats["kinds"].values()) == 270
    assert stats["correlation"]["heads"] == 269


def test_kinds():
    positional, symbolic = np.array([0.9, 0.5, 0.75, np.nan, 1.0]), np.array([0.5, 0.9, 0.625, 0.5, 0.75])
    assert head_kinds(positional, symbolic, 0.25).tolist() == ["positional", "symbolic", "mixed", "unscored", "positional"]


def test_agreement_of_two_ways():
    first = np.array([[[0.2, 0.4, 0.9]], [[0.4, 0.6, 0.7]]])
    second = np.array([[[0.3, 0.3, 0.8]], [[0.5, np.nan, 0.6]]])
    found = agreement(first, second)
    # Means over the inputs that have both: 0.3, 0.4, 0.8 and 0.4, 0.3, 0.7.
    assert found["heads"] == 3
    assert found["pearson"] == pytest.approx(pearson_by_hand([0.3, 0.4, 0.8], [0.4, 0.3, 0.7]))
    assert found["spearman"] == pytest.approx(0.5)
    assert found["mean_difference"] == pytest.approx(-0.1 / 3)
    assert found["mean_absolute_difference"] == pytest.approx(0.1)
    assert agreement(first, np.full_like(first, np.nan)) is None


def test_sensitivity(planted):
    dataset, stats = planted
    found = stats["sensitivity"]
    assert [row["tau"] for row in found["tau"]] == dataset["tau"].values.tolist()
    moved = [row["symbolic"]["mean_absolute_difference"] for row in found["tau"]]
    assert moved[1] == 0
    assert moved[1] < moved[0] < moved[2] < moved[3]
    assert found["tau"][1]["positional"]["spearman"] == pytest.approx(1)
    # Single-token scores were made as nine tenths of the others.
    assert found["tokens"]["positional"]["mean_difference"] == pytest.approx(-0.1 * 0.72, abs=0.01)


def test_right_answers(small):
    small["right"].values[:] = [True, False, True]
    small["positional"].values[1] += 0.3
    stats = statistics(small)
    assert (stats["right"], stats["inputs"]) == (2, 3)
    assert np.array(stats["heads_when_right"]["positional"]["mean"]) == pytest.approx(POSITIONAL)
    assert stats["right_only"]["all_and_right"]["positional"]["mean_difference"] == pytest.approx(-0.1)
    assert stats["right_only"]["wrong_and_right"] is None
    small["right"].values[:] = [True, False, False]
    stats = statistics(small)
    assert stats["heads_when_right"] is None
    assert stats["right_only"]["all_and_right"] is None


def test_heads_of_both_kinds(small):
    small["positional"].values[0, 0, 0], small["symbolic"].values[0, 0, 0] = 0.1, 0.9
    assert statistics(small)["over_inputs"]["heads_of_both_kinds"] == 1


def test_planes(small):
    small["plane_positional"].values[:] = [0.9, 0.8, 0.5, 0.3]
    small["plane_symbolic"].values[:] = [0.85, 0.4, 0.6, 0.7]
    small["plane_symbolic"].values[:, 3, 1] = [0.9, 0.2, 0.1, 0.05]  # differences of 0, -0.6, -0.4, -0.25
    norms = np.ones((3, 4, 2, 4))
    norms[:, :2, :, 1] = norms[:, 2:, :, 3] = 2
    small["plane_norm"].values[:] = norms
    small["plane_spread"].values[:] = [1.0, 2.0, 3.0, 4.0]
    found = statistics(small)["frequency"]
    # Lower scores are 0.85, 0.4, 0.5, 0.3 in seven heads: ranks from uniform 1 3 2 4 against 1 2 3 4.
    assert found["use_and_selectivity"]["median"] == pytest.approx(0.8)
    assert found["frequency"] == pytest.approx([1, 0.1, 0.01, 0.001])
    assert found["positional"]["mean"] == pytest.approx([0.9, 0.8, 0.5, 0.3])
    assert found["symbolic"]["mean"] == pytest.approx([(7 * 0.85 + 0.9) / 8, 0.375, (7 * 0.6 + 0.1) / 8, (7 * 0.7 + 0.05) / 8])
    # Differences of seven heads have ranks 2 1 3 4, of the other 4 1 2 3: rank correlations 0.8 and -0.2.
    assert found["trend_of_heads"]["heads"] == 8
    assert found["trend_of_heads"]["median"] == pytest.approx(0.8)
    assert found["trend_of_heads"]["share_rising"] == pytest.approx(7 / 8)
    assert found["trend_of_means"]["r"] == pytest.approx(0.8)
    largest = found["largest"]["norm"]
    assert largest["plane"] == [[2, 2], [2, 2], [4, 4], [4, 4]]
    # Leads of the heads: the first four are positional; of the others 0.1, -0.1, 0.7 and 0.3 two are symbolic and two mixed.
    assert largest["median"] == {"positional": 2, "symbolic": 4, "mixed": 4}
    # Both heads of a layer have the same.
    assert largest["with_lead"]["within_layers"] == {"r": None, "p_value": None}
    # In their largest plane, the first four heads have a difference of -0.4, the next three 0.4 and the last -0.25.
    against = pearson_by_hand((SYMBOLIC - POSITIONAL).ravel(), [-0.4] * 4 + [0.4] * 3 + [-0.25])
    assert largest["score_there"]["pearson"]["r"] == pytest.approx(against)


def test_bands_of_planes():
    assert plane_bands(32) == {"fastest": slice(0, 4), "middle to fast": slice(4, 22), "slow": slice(22, 32)}
    assert plane_bands(3) == {"fastest": slice(0, 1), "middle to fast": slice(1, 2), "slow": slice(2, 3)}


def test_layer_that_does_not_turn_has_no_planes(planted):
    dataset, stats = planted
    assert np.isfinite(dataset["plane_positional"].values[:, UNROTATED, :, 0]).all()
    assert np.isnan(plane_means(dataset, "positional")[UNROTATED]).all()
    assert stats["frequency"]["trend_of_heads"]["heads"] == 270 - 9 - 1
    assert stats["frequency"]["frequency"][0] == 1


def test_planes_of_other_layers_are_not_mixed_with_it(small):
    small["plane_positional"].values[:] = [0.9, 0.8, 0.5, 0.3]
    small["plane_positional"].values[:, :, 1] -= 0.2
    small["plane_positional"].values[:, 1] = [0.1, np.nan, np.nan, np.nan]
    small["frequency"].values[1] = [0, np.nan, np.nan, np.nan]
    found = statistics(small)["frequency"]
    # Heads differ, but layers do not.
    for end in ("mean", "lower", "upper"):
        assert found["positional"][end] == pytest.approx([0.8, 0.7, 0.4, 0.2])
    assert found["frequency"] == pytest.approx([1, 0.1, 0.01, 0.001])
    assert found["largest"]["norm"]["plane"][1] == [None, None]


def test_exclusion_and_checks(small):
    small["exclusion_bound"].values[:] = small["exclusion_variance"].values
    stats = statistics(small)
    assert stats["exclusion"] == {"cases": 24, "violations": 0, "share": 0.0}
    small["exclusion_bound"].values[1, 2, 0] *= 0.99
    small["exclusion_bound"].values[0, 0, 0] = np.nan
    small["check_error"].values[2, 1] = 0.5
    stats = statistics(small)
    assert stats["exclusion"] == {"cases": 23, "violations": 1, "share": pytest.approx(1 / 23)}
    assert stats["worst_check_error"] == 0.5


def test_classical_scores_and_shares(small):
    small["previous_token"].values[:] = POSITIONAL**2
    small["induction"].values[:] = np.nan
    small["symbol_share"].values[:] = 0.5 + (SYMBOLIC - POSITIONAL) ** 3 / 4
    small["position_share"].values[:] = 0.5 - (SYMBOLIC - POSITIONAL) ** 3 / 4
    stats = statistics(small)
    assert stats["classical"]["previous_token"]["positional"]["spearman"]["r"] == pytest.approx(1)
    assert stats["classical"]["previous_token"]["symbolic"]["spearman"]["r"] == pytest.approx(1 - 6 * 166 / 504)
    assert stats["classical"]["induction"] == {"positional": None, "symbolic": None}
    assert stats["shares"]["spearman"]["r"] == pytest.approx(1)


def test_planted_trends_are_found(planted):
    stats = planted[1]
    assert stats["correlation"]["pearson"]["r"] < -0.9
    assert stats["correlation"]["within_layers"]["p_value"] == pytest.approx(1e-4)
    assert stats["depth"]["symbolic"]["prompts_with_trend"] == 20
    assert stats["classical"]["previous_token"]["positional"]["within_layers"]["p_value"] == pytest.approx(1e-4)


def test_no_trend_is_found_where_there_is_none(null):
    p_values = [null[name]["within_layers"]["p_value"] for name in ("correlation", "shares")]
    p_values += [null["frequency"]["largest"][use]["with_lead"]["within_layers"]["p_value"] for use in ("norm", "spread")]
    assert min(p_values) > 0.05
    assert abs(null["frequency"]["trend_of_means"]["r"]) < 0.5


@pytest.mark.parametrize("inputs", [1, 8])
def test_everything_is_plain_json(inputs):
    dataset = make_profile(inputs=inputs)
    stats = statistics(dataset)
    assert json.loads(json.dumps(stats, allow_nan=False)) == stats
    assert (stats["heads"]["positional"]["low"][0][0] is None) == (inputs == 1)


def test_profile_without_any_score():
    dataset = make_profile(inputs=2, layers=4, heads=2, planes=4)
    for name, values in dataset.items():
        if values.dtype == float:
            dataset[name] = values * np.nan
    stats = statistics(dataset)
    assert json.loads(json.dumps(stats, allow_nan=False)) == stats
    assert stats["correlation"] is None
