"""For which pairing weights were trained: told for trained weights of both pairings, and not for random ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import real
import torch
from torch import nn

import ropescope as rs
from ropescope.models.load import load_model
from ropescope.models.rope_check import check_model
from ropescope.models.trained_pairing import WeightPairs, permuted, weight_pairs
from ropescope.rotations import Planes
from ropescope.studies.check_rope.faults import permuted_weights
from ropescope.studies.check_rope.faulty import subject_of
from ropescope.studies.conformance.families import tiny


def rotation(pairing, head_dim, first=0, count=None):
    planes = Planes(pairing, first, head_dim // 2 if count is None else count)
    return SimpleNamespace(planes=planes, head_dim=head_dim, turning=np.ones(planes.count, dtype=bool))


def module(query, key):
    return SimpleNamespace(q_proj=SimpleNamespace(weight=query), k_proj=SimpleNamespace(weight=key))


def slow(query, key, heads, dim, pairs):
    """Standard errors above chance, one product of rows after the other."""
    key = key.reshape(-1, dim, key.shape[1])
    alike = np.zeros((dim, dim))
    for head in range(heads):
        for i in range(dim):
            for j in range(dim):
                q, k = query[head * dim + i], key[head * len(key) // heads][j]
                alike[i, j] += float(torch.cosine_similarity(q, k, 0)) ** 2 / heads
    both = [(alike[i, j] + alike[j, i]) / 2 for i in range(dim) for j in range(dim) if i != j]
    chosen = [(alike[i, j] + alike[j, i]) / 2 for i, j in pairs]
    return (np.mean(chosen) - np.mean(both)) / (np.std(both, ddof=1) / len(pairs) ** 0.5)


def test_the_slow_way():
    query, key = torch.randn(4 * 16, 8), torch.randn(2 * 16, 8)
    found = weight_pairs(module(query, key), 4, rotation("half", 16))
    assert found.own == pytest.approx(slow(query, key, 4, 16, [(i, i + 8) for i in range(8)]), rel=1e-4)
    assert found.other == pytest.approx(slow(query, key, 4, 16, [(2 * i, 2 * i + 1) for i in range(8)]), rel=1e-4)


@pytest.mark.parametrize("task", ["number", "letter"])
def test_trained_weights_tell(task):
    """Our own models pair neighbours."""
    blocks = rs.bundled(task).blocks
    for pairing, leaning in (("interleaved", "own"), ("half", "other")):
        found = [weight_pairs(module(each.query.weight, each.key.weight), 1, rotation(pairing, 128)) for each in blocks]
        assert sum(each.leaning == leaning for each in found) >= 0.7 * len(blocks)
        assert {each.leaning for each in found} <= {leaning, "neither"}
        assert permuted(found) == (leaning == "other")


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gptj", "stablelm"])
def test_random_weights_tell_nothing(family):
    checks = check_model(tiny(family, dtype=torch.float32), tokens=8)
    assert {check.weights.leaning for check in checks if check.weights is not None} <= {"neither"}
    assert not permuted([check.weights for check in checks])


def test_what_cannot_be_read_tells_nothing():
    weight = torch.randn(64, 8)
    good = rotation("half", 32)
    assert weight_pairs(module(weight, weight), 2, good) is not None
    assert weight_pairs(nn.Linear(2, 2), 2, good) is None
    assert weight_pairs(module(weight, weight), 4, good) is None  # other heads than the layer has
    assert weight_pairs(module(weight.to(torch.int8), weight), 2, good) is None
    assert weight_pairs(module(weight, torch.randn(64, 9)), 2, good) is None
    assert weight_pairs(module(weight, weight), 2, rotation("none", 32, count=0)) is None
    assert weight_pairs(module(weight, weight), 2, rotation("half", 32, count=4)) is None
    assert not permuted([None, None])
    assert not permuted([WeightPairs(9.0, 1.0), WeightPairs(1.0, 9.0)])


@pytest.mark.weights
def test_permuted_weights_of_a_trained_model(tmp_path):
    model = load_model(str(real.folder("stories15M")), "float32").model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    subject = subject_of(model, check_model(model, tokens=8))
    layers = list(subject.readable)
    with permuted_weights([subject.modules[n] for n in layers], [subject.readable[n] for n in layers]):
        checks = check_model(model, tokens=8)
        model.save_pretrained(tmp_path / "permuted")
    assert not any(check.departed for check in checks)  # the rotation is right
    assert {check.weights.leaning for check in checks} == {"other"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {check.weights.leaning for check in check_model(model, tokens=8)} == {"own"}
    result = rs.run("check-rope", source=str(tmp_path / "permuted"))
    assert "weights are probably permuted" in result.headline
    assert result.summary["results"]["weights"]["leaning"] == {"own": 0, "other": 6, "neither": 0}
