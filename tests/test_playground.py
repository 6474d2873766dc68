"""What a playground stores: exact enough, small enough, safe inside a page. What it shows is tested in `in_browser`."""

import hashlib
import json

import numpy as np
import pytest
import torch
from pages import RESULTS
from playing import number, odd_heads, smollm

import ropescope as rs
from ropescope.report.playground import fragment
from ropescope.studies import playground as player
from ropescope.tasks import NumberTask
from ropescope.tasks.prompts import Prompt


@pytest.mark.weights
def test_single_precision_is_kept_where_it_is_exact():
    for played, turned in ((smollm(), True), (number(), False)):
        subject = played.data["subjects"][0]
        assert {layer["keys"]["type"] for layer in subject["layers"]} == {"float32"}
        assert {layer["turned"] for layer in subject["layers"]} == {turned}
        assert subject["check"]["attention"] < 1e-14
        assert subject["check"]["scores"] < 1e-12
        assert len(subject["tables"]) == 1
    assert len(json.dumps(smollm().data)) < 2_200_000
    assert len(json.dumps(number().data)) < 200_000


def test_double_precision_where_it_is_needed():
    odd = odd_heads()  # its keys are of double precision
    subject = odd.data["subjects"][0]
    assert {layer["keys"]["type"] for layer in subject["layers"]} == {"float64"}
    assert subject["check"]["attention"] < 1e-14
    for layer, heads in player.stored_heads(subject):
        torch.testing.assert_close(rs.layer_logits(heads), rs.layer_logits(odd.heads[layer]), rtol=0, atol=1e-13)
    rough = {key: value for key, value in subject.items() if key != "layers"}
    rough["layers"] = [
        layer | {key: {"type": "float32", "base64": single(layer[key])} for key in ("queries", "keys")}
        for layer in subject["layers"]
    ]
    check = player._check(rough, list(odd.heads.values()))
    assert check["attention"] > player.ATTENTION_ERROR  # the check sees rounding


def single(packed: dict) -> str:
    values = player._unpacked(packed, (-1,))
    return player._packed(values, "float32")["base64"]


def test_size_grows_with_tokens_not_their_square():
    task = NumberTask()
    model, sizes = rs.bundled("number"), []
    for extra in (0, 17, 34):
        ids = np.resize(task.sample(4, 0).tokens, 17 + extra)
        subject = player.subject(model, Prompt(ids, (), tuple(task.decode(ids))), "x")
        sizes.append(len(json.dumps(subject)))
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=0.01)
    with pytest.raises(ValueError, match="at most 192 tokens"):
        player.subject(model, Prompt(np.zeros(193, np.int64), (), ("a",) * 193), "x")


def test_large_models_leave_out_layers(monkeypatch):
    odd = odd_heads()
    monkeypatch.setattr(player, "LARGEST", 4 * 2 * 15 * 10 * 3)
    subject = player.subject_of_heads(list(odd.heads.items()), odd.prompt, "few")
    assert [layer["layer"] for layer in subject["layers"]] == [0, 4, 8]
    assert subject["layers_of_model"] == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("name", ["profile-smollm2-135m", "profile-stories15M", "profile-gemma3-270m", "mechanisms"])
def test_recorded_playgrounds(name):
    folder = RESULTS / name
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["sha256"]["playground.json"] == hashlib.sha256((folder / "playground.json").read_bytes()).hexdigest()
    for subject in json.loads((folder / "playground.json").read_text())["subjects"]:
        config = summary["config"]["model" if "model" in summary["config"] else subject["name"].removesuffix(" task")]
        assert subject["about"]["weights"] == config["weights"]
        assert subject["check"]["attention"] < 1e-12
        for _, heads in player.stored_heads(subject):
            assert torch.isfinite(rs.layer_logits(heads)).all()


@pytest.mark.weights
def test_the_recorded_playground_is_that_of_the_model():
    ours_now = smollm()
    recorded = json.loads((RESULTS / "profile-smollm2-135m" / "playground.json").read_text())["subjects"][0]
    assert recorded["tokens"] == list(ours_now.prompt.tokens)
    assert recorded["examples"] == {kind: list(at) for kind, at in ours_now.data["subjects"][0]["examples"].items()}
    for layer, heads in player.stored_heads(recorded):
        ours = rs.layer_factors(ours_now.heads[layer]).diagonal().softmax(-1)
        theirs = rs.layer_factors(heads).diagonal().softmax(-1)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)  # another processor rounds otherwise


def test_fragments_are_safe_text():
    text = fragment({"subjects": [{"name": "</script><b>&\u2028"}]}, 'a"b<c>')
    assert text.count("</script>") == 2  # the data and their arrays
    assert "\u2028" not in text
    assert 'data-run="a&#34;b&lt;c&gt;"' in text
    inner = text.split('<script type="application/json">')[1].split("</script>")[0]
    assert json.loads(inner)["data"] == {"subjects": [{"name": "</script><b>&\u2028"}]}


def test_sizes_in_the_docs():
    docs = (RESULTS.parent / "docs" / "playground.md").read_text()
    for path in sorted(RESULTS.glob("*/playground.json")):
        subjects = json.loads(path.read_text())["subjects"]
        heads = " + ".join(str(sum(layer["heads"] for layer in subject["layers"])) for subject in subjects)
        tokens = " + ".join(str(len(subject["tokens"])) for subject in subjects)
        assert f"| {path.parent.name} | {heads} | {tokens} | {path.stat().st_size / 1e6:.2f} MB |" in docs
