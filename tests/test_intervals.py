"""Intervals and p-values do what they say where there is nothing to find, by simulation: coverage and size."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

import ropescope as rs
from ropescope.measures import redrawn, view
from ropescope.measures.intervals import LEAST_INPUTS, beyond_noise, mean_interval, turned_p_value, within_layers
from ropescope.studies.canonical.findings import shape

TRIALS = 6_000
DRAWN = {
    "normal": (lambda draws, shape: draws.normal(size=shape), 0.0),
    "uniform": (lambda draws, shape: draws.uniform(size=shape), 0.5),
    "exponential below 1": (lambda draws, shape: 1 - draws.exponential(0.02, shape), 0.98),
    "beta(8, 1/2), skewed near 1": (lambda draws, shape: draws.beta(8, 0.5, shape), 8 / 8.5),
    "beta(20, 1), skewed near 1": (lambda draws, shape: draws.beta(20, 1, shape), 20 / 21),
    "beta(5, 2)": (lambda draws, shape: draws.beta(5, 2, shape), 5 / 7),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("inputs", [LEAST_INPUTS, 12, 20, 50])
def test_interval_covers_the_true_mean_as_often_as_it_says(name, inputs):
    draw, mean = DRAWN[name]
    found = mean_interval(draw(np.random.default_rng(inputs), (inputs, TRIALS)))
    covered = ((found.low <= mean) & (mean <= found.high)).mean()
    assert 0.92 <= covered <= 0.98, covered


def test_percentile_bootstrap_did_not():
    """What the interval replaces: a resampled mean does not know that few values understate their spread."""
    draws = np.random.default_rng(0)
    covered = {}
    for inputs in (2, 4, 8):
        values = draws.normal(size=(inputs, 2_000))
        means = np.tensordot(draws.multinomial(inputs, np.full(inputs, 1 / inputs), size=400) / inputs, values, 1)
        low, high = np.quantile(means, [0.025, 0.975], axis=0)
        covered[inputs] = ((low <= 0) & (high >= 0)).mean()
    assert covered[2] < 0.6
    assert covered[4] < 0.85
    assert covered[8] < 0.92


def test_fewer_inputs_have_no_interval():
    with pytest.raises(ValueError, match="at least 8 inputs along axis 0 for an interval, not 7"):
        mean_interval(np.ones(LEAST_INPUTS - 1))


def tables(draws, layers, heads, depth, group):
    """A table of heads that has nothing to do with any other: it drifts with depth, and heads of a group are alike."""
    noise = np.repeat(draws.normal(size=(layers, heads // group)), group, 1) + 0.3 * draws.normal(size=(layers, heads))
    course = {"none": np.zeros, "layers differ": draws.normal, "random walk": lambda size: draws.normal(size=size).cumsum(0)}
    return course[depth](size=(layers, 1)) + noise if depth != "none" else noise


@pytest.mark.parametrize("depth", ["none", "layers differ", "random walk"])
@pytest.mark.parametrize(("layers", "heads", "group"), [(8, 8, 4), (18, 4, 2), (30, 9, 3)])
@pytest.mark.slow
def test_p_value_within_layers_has_the_size_it_says(layers, heads, group, depth, monkeypatch):
    monkeypatch.setattr("ropescope.measures.intervals.TURNS", 511)
    draws = np.random.default_rng(layers)
    pairs = [[tables(draws, layers, heads, depth, group) for _ in range(2)] for _ in range(1_200)]
    size = np.mean([within_layers(x, y, seed).p_value <= 0.05 for seed, (x, y) in enumerate(pairs)])
    assert 0.03 <= size <= 0.07, size


@pytest.mark.parametrize(("layers", "size"), [(6, 2 / 64), (7, 6 / 128)])
def test_size_with_few_layers(layers, size):
    """All signs that chance can give the layers, each as likely: how many have p at most 0.05."""
    sizes = np.random.default_rng(0).uniform(0.5, 2, layers)
    p_values = [turned_p_value(sizes * signs) for signs in product((-1, 1), repeat=layers)]
    assert np.mean(np.array(p_values) <= 0.05) == size


def test_shuffling_layers_did_not():
    """What it replaces: whole layers dealt anew, where both tables drift with depth."""
    draws, beyond = np.random.default_rng(0), []
    orders = draws.permuted(np.tile(np.arange(30), (199, 1)), axis=1)
    for _ in range(200):
        x, y = (tables(draws, 30, 9, "random walk", 3) for _ in range(2))
        x, y = x - x.mean(), y - y.mean()
        shuffled = np.abs((x @ y.T)[np.arange(30), orders].sum(1))
        beyond.append(np.mean(shuffled >= abs((x * y).sum())) < 0.05)
    assert np.mean(beyond) > 0.3


def test_what_goes_together_within_layers_is_found():
    draws = np.random.default_rng(0)
    x = tables(draws, 12, 6, "random walk", 1)
    found = within_layers(x, -x + 0.5 * draws.normal(size=x.shape))
    assert found.r < -0.8
    assert found.p_value == pytest.approx(2 / 2**12)  # no other way to turn 12 layers gives as much, but all turned
    only_depth = within_layers(np.arange(12.0)[:, None] + np.zeros((12, 6)), x)
    assert np.isnan(only_depth.r)


def test_all_ways_to_turn_are_counted():
    assert turned_p_value(np.array([1.0, 2, 3, 4, 5, 6])) == 2 / 64
    assert turned_p_value(np.array([1.0, -1, 1, -1, 1, -1])) == 1
    assert np.isnan(turned_p_value(np.ones(5)))


def test_missing_heads_do_not_enter():
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(2, 8, 5))
    holes = x.copy()
    holes[:, 4] = np.nan
    assert within_layers(holes, y) == within_layers(x[:, :4], y[:, :4])


def test_looks_of_one_training_run_have_no_p_value():
    """Two random walks of 135 looks that have nothing to do with each other: three in four would be called significant."""
    walks = np.random.default_rng(0).normal(size=(2, 200, 135)).cumsum(-1)
    assert np.mean([spearmanr(x, y).pvalue < 0.05 for x, y in zip(*walks, strict=True)]) > 0.6


@pytest.mark.slow
def test_bend_over_places_has_the_size_it_says():
    """Five seeds whose accuracy differs, but is the same at all places: 125 test sequences for each of 16."""
    draws, angles = np.random.default_rng(0), np.array([0.0, 0.1, 0.2])
    accuracy = draws.beta(20, 20, (1_500, 5, 3))
    places = draws.binomial(125, accuracy[..., None], (1_500, 5, 3, 16)) / 125
    size = np.mean([shape(place, final, angles)["bend_p"] < 0.05 for place, final in zip(places, accuracy, strict=True)])
    assert 0.03 <= size <= 0.07, size


# Noise


def noisy_view(draws, heads=24, keys=7, spread=None):
    """A layer whose logits are noise, of another spread in each head."""
    M = draws.normal(size=(1, heads, keys, keys)) * (draws.uniform(0.3, 4, heads) if spread is None else spread)[:, None, None]

    class Layer:
        tau, seed, layer, visible_blocks = 1e-4, int(draws.integers(2**31)), 0, range(keys - 1)
        sizes = {"input": 1, "head": heads}  # noqa: RUF012

    Layer.M = torch.from_numpy(M)
    return Layer


def r_of(positional, symbolic):
    return pearsonr(positional, symbolic, axis=1).statistic


@pytest.mark.slow
def test_noise_is_told_from_noise_as_often_as_the_level_says():
    """Models of 24 heads whose logits are noise, all in one layer."""
    models, heads = 1_500, 24
    layer = noisy_view(np.random.default_rng(0), heads=models * heads)
    drawn = [scores[0].numpy().reshape(view.DRAWS * models, heads) for scores in redrawn.redrawn(layer)]
    found = r_of(*(score.numpy().reshape(models, heads) for score in rs.swap_scores(layer.M)))
    p_values = np.array([beyond_noise(*pair) for pair in zip(found, r_of(*drawn).reshape(-1, models).T, strict=True)])
    # With 20 draws p-values are multiples of 1/21.
    assert 0.03 <= np.mean(p_values < 0.05) <= 0.07


def test_noise_alone_correlates_scores():
    layer = noisy_view(np.random.default_rng(0), heads=200, keys=25, spread=np.ones(200))
    assert -0.97 < r_of(*(scores[0].numpy() for scores in redrawn.redrawn(layer))).mean() < -0.8


def test_noise_is_as_large_as_the_logits_were():
    draws = np.random.default_rng(0)
    layer = noisy_view(draws, heads=3, keys=40, spread=np.array([0.0, 1e-9, 50.0]))
    positional, symbolic = (scores[0].mean(0) for scores in redrawn.redrawn(layer))
    assert positional[:2].tolist() == pytest.approx([1, 1])  # uniform attention, noise or not
    assert symbolic[:2].tolist() == pytest.approx([1, 1])
    assert max(positional[2], symbolic[2]) < 0.9


def test_noise_does_not_depend_on_the_batch_but_on_seed_and_layer():
    layer = noisy_view(np.random.default_rng(0))
    (one, _) = redrawn.redrawn(layer)
    layer.M = layer.M.expand(3, -1, -1, -1)
    (many, _) = redrawn.redrawn(layer)
    assert many.shape == (3, view.DRAWS, 24)
    assert torch.equal(many[2], one[0])
    layer.layer = 1
    assert not torch.equal(redrawn.redrawn(layer)[0], many)


def test_too_many_keys_are_not_measured():
    layer = noisy_view(np.random.default_rng(0), heads=1, keys=redrawn.MOST_KEYS + 2)
    assert all(scores.isnan().all() for scores in redrawn.redrawn(layer))
