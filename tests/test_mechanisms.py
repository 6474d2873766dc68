"""Heads whose function is known are found to do it, and changed attention is really used."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_cli import check_summary

import ropescope as rs
from ropescope import bundled, cli, counterfactual_logits, logit_factors, margin
from ropescope.measures.planes import mean_plane, plane_use, planes_in_use
from ropescope.models.gptj import GPTJ, GPTJConfig, save_gptj
from ropescope.models.gptj_steps import run
from ropescope.rope import Rope
from ropescope.studies.mechanisms import flow, planes
from ropescope.studies.mechanisms.run import mechanisms
from ropescope.tasks import LetterTask, NumberTask
from ropescope.tasks.functions import ideal_layers, reflexive
from ropescope.training.trainer import evaluate

TASKS = {"number": NumberTask(), "letter": LetterTask()}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_ideal_layers_solve_the_task_one_hop_a_layer(task):
    """After l layers the nodes at most l hops away hold the answer, and a node that does not yet looks at the next one."""
    samples = task.sample(4000, seed=2)
    layers = ideal_layers(task, samples, 6)
    rows = np.arange(len(samples))
    assert (layers[-1].holds[:, -1] == samples.answer).all()
    for passed, layer in enumerate(layers, start=1):
        for node in range(task.hops):
            on = samples.hops > node
            distance, here = samples.hops[on] - node, samples.path[on, node]
            assert ((layer.holds[rows[on], here] == samples.answer[on]) == (passed >= distance)).all()
            unsolved = passed <= distance
            assert (layer.looks_at[rows[on], here] == samples.path[on, node + 1])[unsolved].all()


def test_reflexive_changes_nothing():
    tokens = NumberTask().sample(5, seed=0).tokens
    does = reflexive(tokens)
    assert (does.holds == tokens).all()
    assert (does.looks_at == np.arange(17)).all()


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.slow
def test_flow_of_a_trained_model(name):
    """Shares add up, nodes hold the answer in the end, and what is counted is what one input at a time shows."""
    model, samples = bundled(name), TASKS[name].sample(60, seed=8)
    summary = flow.flow_summary(flow.information_flow(model, samples))
    assert summary["solved"] == 60
    assert summary["nodes"] == samples.hops.sum()
    for layer in range(12):
        assert sum(summary[kind][layer] for kind in flow.LOOKS) == pytest.approx(1, abs=1e-5)
        assert sum(summary["weight_itself_ahead_elsewhere"][layer]) == pytest.approx(1, abs=1e-5)
        assert summary["delivered"][layer] <= summary["hop"][layer]
    assert summary["holds_answer_by_distance"][-1] == [1, 1, 1, 1]
    assert summary["agreement_with_ideal"][-1] == 1
    assert np.mean(summary["explained"][1:]) > 0.9

    # One layer recounted the slow way.
    layer, counts = 3, {"reflexive": 0, "hop": 0, "other": 0}
    for row in range(len(samples)):
        sample = samples[row : row + 1]
        seen: dict[str, torch.Tensor] = {}

        def on_weights(n, weights, seen=seen):
            if n == layer:
                seen["weights"] = weights[0, 0]

        def on_state(n, state, seen=seen):
            if n == layer:
                seen["says"] = model.readout(model.norm(state[0])).argmax(-1)

        run(model, torch.from_numpy(sample.tokens), on_weights=on_weights, on_state=on_state)
        path = [p for p in sample.path[0].tolist() if p >= 0]
        holds = [bool(seen["says"][p] == sample.answer[0]) or p == path[-1] for p in range(17)]
        for node, here in enumerate(path[:-1]):
            look = int(seen["weights"][here].argmax())
            if look == here or (holds[here] and holds[look]):
                counts["reflexive"] += 1
            elif look in path[node + 1 :]:
                counts["hop"] += 1
            else:
                counts["other"] += 1
    for kind, count in counts.items():
        assert summary[kind][layer] == pytest.approx(count / summary["nodes"], abs=1e-6)


def test_changes_of_attention():
    """No change is the model itself; a layer that attends to nothing adds nothing; the ideal keeps the model's answers."""
    model, task = bundled("number"), NumberTask()
    samples = task.sample(64, seed=3)
    looks_at = task.ideal_hop(samples.tokens).looks_at

    def accuracy(change):
        return flow.accuracy_with(model, samples, looks_at, change)

    assert accuracy({}) == pytest.approx(evaluate(model, samples).tolist())
    assert accuracy({2: "hop"}) == [1, 1, 1, 1]
    without = bundled("number")
    for block in without.blocks:
        block.out.weight.data.zero_()
    assert accuracy(dict.fromkeys(range(12), "out")) == pytest.approx(evaluate(without, samples).tolist())
    assert max(accuracy(dict.fromkeys(range(12), "reflexive"))) < 0.5


def test_no_change_is_tried_twice():
    tried = flow.interventions(6, [1, 2, 4], [0, 5])
    assert [name for name in tried if name.endswith("positional out")] == [
        "first 2 positional out",
        "first 3 positional out",
        "last 2 positional out",
    ]
    assert tried["last 2 positional out"] == {2: "out", 4: "out"}
    changes = list(tried.values())
    assert all(change not in changes[:n] for n, change in enumerate(changes))


def test_ideal_weights_leave_undefined_rows_to_the_model():
    weights = flow.ideal_weights(np.array([[0, 0, -1]]))
    assert weights[0, :2].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert weights[0, 2].isnan().all()


@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 10**6), st.sampled_from([None, 3]))
def test_planes_add_up_to_the_logits(count, tokens, seed, window):
    generator = torch.Generator().manual_seed(seed)
    rope = Rope(head_dim=2 * count + 2, frequencies=torch.rand(count, generator=generator))
    query = torch.randn(3, rope.head_dim, generator=generator)
    keys = torch.randn(3, tokens, rope.head_dim, generator=generator)
    factors = logit_factors(query, keys, rope, window=window)
    diagonal = factors.plane_diagonal()
    assert diagonal.shape == (count + 1, 3, tokens)
    assert torch.allclose(diagonal.sum(0), factors.diagonal())
    whole = counterfactual_logits(query, keys, rope, window=window, by_plane=True).diagonal(dim1=-2, dim2=-1)
    assert torch.allclose(diagonal, whole)
    use = plane_use(factors)
    seen = diagonal[..., -(window or tokens) :]
    assert torch.allclose(use.largest, seen.amax(-1))
    assert torch.allclose(use.spread, seen.var(-1, correction=0))


def test_mean_plane_and_planes_in_use():
    equal, one = torch.ones(64), torch.eye(64)[9]
    assert mean_plane(equal) == 32.5
    assert planes_in_use(equal) == 64
    assert mean_plane(one) == 10  # counted from 1
    assert planes_in_use(one) == 1
    assert mean_plane(torch.tensor([-5.0, 1.0, 1.0])) == 2.5


def test_place_gaps_are_margins_among_equal_keys():
    """Recomputed for one layer from rotated vectors, place by place."""
    model, task = bundled("number"), NumberTask()
    samples = task.sample(24, seed=4)
    found = planes.place_gaps(model, task, samples, [2], reach=(17, 40))["L2"]["gap"]
    caught = {}
    model(torch.from_numpy(samples.tokens), on_heads=caught.setdefault)
    heads = caught[2]
    key = heads.keys[:, 0][torch.from_numpy(samples.tokens) < 120].mean(0)
    for tokens, gap in zip((17, 40), found, strict=True):
        here = tokens - 1
        margins = []
        for row in range(24):
            query = heads.rope.rotate(heads.queries[row, 0, -1], here)
            logits = torch.stack([query @ heads.rope.rotate(key, place) for place in range(tokens)]) * heads.scale
            right = here - int(samples.path[row, 0] - samples.path[row, 1])
            margins.append(margin(logits, right))
        assert torch.stack(margins).median().item() == pytest.approx(gap, abs=1e-3)


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    options = ["--inputs", "80", "--changed", "8", "--out", str(tmp_path)]
    cli.app(["mechanisms", "number", *options], standalone_mode=False)
    shown = capsys.readouterr()
    assert shown.err == ""
    summary = check_summary(tmp_path, "mechanisms")
    assert {"head_details.json", "playground.json"} < set(summary["sha256"])
    results = summary["results"]["number"]
    assert results["flow"]["solved"] == 80
    assert results["layers"] == {"positional": [1, 2, 3, 4], "symbolic": [0, 5, 6, 7, 8, 9, 10, 11]}
    assert len(results["changes"]["L3 out"]) == 4
    for name in ("functions", "planes", "example"):
        assert (tmp_path / f"number-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<script src=" not in (tmp_path / f"number-{name}.html").read_text()
    assert "without, per hop" in shown.out
    assert "B-3-index" in shown.out
    subject = json.loads((tmp_path / "playground.json").read_text())["subjects"][0]
    assert (subject["name"], len(subject["tokens"]), len(subject["layers"])) == ("number task", 17, 12)


def test_a_recorded_run_as_a_result(runs):
    """Its example and points are in closer.json, as version 0.1 called it."""
    (recorded,) = (run for run in runs if run.name == "mechanisms")
    assert (recorded.folder / "closer.json").exists()
    result = rs.open_run(recorded.folder)
    assert {f"{task}-{name}" for task in TASKS for name in ("functions", "planes")} <= set(result.figures())
    changes = result.dataset["accuracy"].sel(task="letter", change="symbolic hop")
    np.testing.assert_array_equal(changes, recorded.results["letter"]["changes"]["symbolic hop"])
    assert {"B-2-heads-needed", "B-3-index", "B-T1-letter-late"} <= {row.claim for row in result.claims()}


def test_a_model_with_several_heads_is_refused(tmp_path):
    model = GPTJ(GPTJConfig(LetterTask().vocab_size, layers=2, heads=2, width=16, mlp_width=16))
    save_gptj(model, tmp_path / "model")
    with pytest.raises(ValueError, match="one head in each layer: this one of the letter task has 2"):
        rs.run("mechanisms", task="letter", model=tmp_path / "model", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_flow_and_planes_of_several_heads():
    torch.manual_seed(0)
    task = LetterTask()
    model = GPTJ(GPTJConfig(task.vocab_size, layers=2, heads=2, width=16, mlp_width=16)).eval()
    with pytest.raises(ValueError, match="solves none of 4 inputs"):
        dict(mechanisms(model, task, task.sample(4, seed=0), 4))
    found = dict(mechanisms(model, task, task.sample(2000, seed=0), 8))  # some are right by chance
    assert np.shape(found["flow"]["hop"]) == (2, 2)
    assert np.shape(found["planes"]["mean_plane_by_spread"]) == (2, 2)
