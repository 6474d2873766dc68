"""The registry of measures: each is named once, and then appears in profiles and watchers."""

import numpy as np
import pytest
import torch

import ropescope as rs
from ropescope.measures import registry
from ropescope.measures.view import LayerView
from ropescope.training.measuring import task_measures, watched

BLOCKS = ((1, 4), (4, 7), (7, 11))
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]])


def view(batch=slice(None), window=None, sinks=None, blocks=BLOCKS):
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(2, heads, 12, 10, generator=generator)[batch] for heads in (4, 2))
    heads = rs.Heads(queries, keys, rs.Rope(head_dim=10, rotary_dim=8), scale=1.0, window=window, sinks=sinks)
    return LayerView(heads, rs.layer_factors(heads), blocks, IDS[batch], permutations=20)


def test_every_measure_has_the_axes_it_says_and_inputs_do_not_mix():
    both, sizes = view(), view().sizes
    assert sizes == {"input": 2, "head": 4, "plane": 5, "tau": 5, "draw": 20}
    found = registry.compute(both, registry.measures().values())
    apart = [registry.compute(view(slice(n, n + 1)), registry.measures().values()) for n in range(2)]
    for name, measure in registry.measures().items():
        assert found[name].shape == tuple(sizes[axis] for axis in ("input", *measure.axes) if axis != "layer"), name
        assert found[name].isfinite().all(), name
        torch.testing.assert_close(found[name], torch.cat([one[name] for one in apart]), atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.0, 1.0, 2.0, 3.0])])
def test_without_blocks_every_token_moves(sinks):
    moving = tuple((p, p + 1) for p in range(11))
    of_tokens, of_blocks = (
        registry.compute(view(sinks=sinks, blocks=blocks), registry.measures("scores", "exclusion").values())
        for blocks in (None, moving)
    )
    for name, value in of_tokens.items():
        torch.testing.assert_close(value, of_blocks[name], atol=1e-12, rtol=0, msg=name)


def test_a_window_that_leaves_one_block_leaves_no_scores():
    found = registry.compute(view(window=6), registry.measures().values())
    for name, measure in registry.measures().items():
        assert found[name].isnan().all() == (measure.min_blocks > 1), name


def test_groups_choose_measures():
    names = {group: list(registry.measures(group)) for group in registry.measure_groups()}
    assert names["scores"] == ["positional", "symbolic", "symbol_share", "position_share", "binding_share"]
    assert names["attention"] == ["entropy", "on_blocks"]
    assert sorted(name for group in names.values() for name in group) == sorted(registry.measures())
    assert registry.measures("planes", axes=registry.HEAD_AXES) == {}
    with pytest.raises(ValueError, match="no group of measures named 'score'"):
        registry.measures("score")
    with pytest.raises(ValueError, match="'entropy' is registered already"):
        registry.measure("entropy", "again", group="attention")(lambda view: view.weights)


def test_a_new_measure_appears_in_profile_and_watchers(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", dict(registry.measures()))

    @registry.measure("own_weight", "weight of the last query on itself", group="scores", min_blocks=0)
    def own_weight(view):
        return view.weights[..., -1]

    model, ids = rs.bundled("letter"), [IDS[0], IDS[1]]
    scores = rs.profile(model, ids, planes=False, sensitivity=False)
    assert scores.own_weight.long_name == "weight of the last query on itself"
    assert scores.own_weight.dims == ("input", "layer", "head")
    row = rs.HeadWatcher(model, ids, out=tmp_path / "watch").look(1)
    np.testing.assert_allclose(row["own_weight"], scores.own_weight.mean("input"), atol=1e-6)
    assert "own_weight" in watched()
    assert "own_weight" in task_measures()


def test_induction_asks_for_tokens():
    of_layer = view()
    blind = LayerView(of_layer.heads, of_layer.factors, BLOCKS)
    with pytest.raises(ValueError, match="ids must be given"):
        registry.compute(blind, [registry.measures()["induction"]])
