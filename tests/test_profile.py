"""Profiles of real language models: against really moving sentences, and as a command."""

import functools
import json
from itertools import combinations

import numpy as np
import oracle
import pytest
import real
import torch
import transformers
from commands import run
from test_cli import check_summary

import ropescope as rs
from ropescope import cli, runs
from ropescope.measures.view import LAST_QUERIES
from ropescope.models.bundled import bundled_folder
from ropescope.studies.conformance.families import tiny
from ropescope.studies.head_scores import Scoring, dataset, measure, packed
from ropescope.studies.profile.head_details import examples, head_details
from ropescope.studies.profile.run import cached_rows

pytestmark = pytest.mark.slow


@functools.cache
def smollm2():
    return rs.load_model(str(real.folder("smollm2-135m")))


@functools.cache
def prompt():
    return rs.binding_prompts(smollm2().tokenizer, 1, pairs=4)[0]


@functools.cache
def scores():
    return rs.profile(smollm2().model, rs.binding_prompts(smollm2().tokenizer, 3, pairs=4))


@pytest.mark.parametrize("layer", [0, 7, 18])
@pytest.mark.parametrize("lengths", ["equal", "unequal"])
def test_scores_are_those_of_really_moving_sentences(layer, lengths):
    """A real layer of real weights, its input really permuted, its own eager attention."""
    model, tau = smollm2().model, 0.01
    one = rs.binding_prompts(smollm2().tokenizer, 1, pairs=4, lengths=lengths)[0]
    ids, tokens = torch.from_numpy(one.ids)[None], len(one)
    attention = model.model.layers[layer].self_attn

    def weights(order):
        def reorder(_, args, kwargs):
            return args, kwargs | {"hidden_states": kwargs["hidden_states"][:, order]}

        hook = attention.register_forward_pre_hook(reorder, with_kwargs=True)
        model.set_attn_implementation("eager")
        try:
            with torch.no_grad():
                return model(ids, use_cache=False, output_attentions=True).attentions[layer][0, :, -1].double().numpy()
        finally:
            model.set_attn_implementation("sdpa")
            hook.remove()

    before = weights(list(range(tokens)))
    cosines, differences = [], []
    for (a, b), (c, d) in combinations(one.blocks, 2):
        moved = weights(oracle.swapped_order((a, b), (c, d), tokens))
        old = np.stack((before[:, a:b].mean(-1), before[:, c:d].mean(-1)), -1)
        new = np.stack((moved[:, a : a + d - c].mean(-1), moved[:, d - (b - a) : d].mean(-1)), -1)
        cosines.append(np.stack((oracle.cosine(new, old), oracle.cosine(new, old[:, ::-1])), -1))
        differences.append(np.abs(old[:, 0] - old[:, 1]))
    alpha = np.exp(np.stack(differences) / tau)
    expected = (alpha[..., None] * np.stack(cosines)).sum(0) / alpha.sum(0)[:, None]
    found = rs.profile(model, [one], tau=tau, planes=False, sensitivity=False).sel(layer=layer).isel(input=0)
    np.testing.assert_allclose(found.positional, expected[:, 0], atol=2e-4)
    np.testing.assert_allclose(found.symbolic, expected[:, 1], atol=2e-4)
    assert expected.min() < 0.95  # something really moved


def test_dataset():
    found = scores()
    assert found.sizes == {"input": 3, "layer": 30, "head": 9, "plane": 32, "tau": 5, "draw": 20}
    assert float(found.check_error.max()) < 1e-5
    for name in ("positional", "symbolic", "plane_positional", "plane_symbolic", "positional_by_token", "symbolic_permuted"):
        assert ((found[name] >= 0) & (found[name] <= 1)).all()
    np.testing.assert_allclose(found.symbol_share + found.position_share + found.binding_share, 1)
    assert (found.exclusion_variance <= found.exclusion_bound).all()
    np.testing.assert_allclose(found.positional_by_tau.sel(tau=1e-4), found.positional)
    np.testing.assert_allclose(found.frequency.isel(layer=0), 100000.0 ** (-np.arange(32) / 32), rtol=1e-4)  # base 1e5
    assert all("long_name" in found[name].attrs for name in found.data_vars)


def test_heads_look_where_the_classical_scores_say():
    """Against the model's own attention weights, all of them."""
    model, one = smollm2().model, prompt()
    ids = torch.from_numpy(one.ids)[None]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = torch.stack(model(ids, use_cache=False, output_attentions=True).attentions)[:, 0].double().numpy()
    model.set_attn_implementation("sdpa")
    found = rs.profile(model, [one], planes=False, sensitivity=False).isel(input=0)
    rows = range(max(1, len(one) - LAST_QUERIES), len(one))
    np.testing.assert_allclose(found.previous_token, np.mean([own[:, :, r, r - 1] for r in rows], 0), atol=1e-5)
    np.testing.assert_allclose(found.sink, np.mean([own[:, :, r, 0] for r in rows], 0), atol=1e-5)
    inside = [p for start, stop in one.blocks for p in range(start, stop)]
    np.testing.assert_allclose(found.on_blocks, own[:, :, -1, inside].sum(-1), atol=1e-5)
    nats = -(own[:, :, -1] * np.log(np.maximum(own[:, :, -1], 1e-300))).sum(-1)
    np.testing.assert_allclose(found.entropy, nats / np.log(len(one)), atol=1e-4)
    repeats = [(r, [j + 1 for j in range(r - 1) if one.ids[j] == one.ids[r]]) for r in rows]
    induction = np.mean([own[:, :, r, after].sum(-1) for r, after in repeats if after], 0)
    np.testing.assert_allclose(found.induction, induction, atol=1e-5)


def test_a_window_leaves_out_what_it_hides():
    model = tiny("gemma3_text")
    ids = torch.randint(4, 60, (24,), generator=torch.Generator().manual_seed(0))
    found = rs.profile(model, [ids]).isel(input=0)
    assert np.isfinite(found.positional).all()
    blocks = [(1, 4), (4, 8), (12, 16)]
    far = measure(rs.Adapter(model), rs.Prompt(ids.numpy(), tuple(blocks), ("x",) * 24), Scoring())
    windows = {}
    rs.Adapter(model).read(ids[None], lambda read: windows.update({read.layer: read.heads.window}))
    assert set(windows.values()) > {None}
    for n, window in enumerate(windows.values()):
        assert np.isnan(far["positional"][n]).all() == (window is not None)


def test_ours_can_be_profiled():
    ids = np.random.default_rng(0).integers(0, 136, (2, 17))
    found = rs.profile(rs.bundled("number"), list(ids))
    assert found.sizes["layer"] == 12
    assert not found.right.any()


def test_sinks_and_layers_without_rotation():
    for family in ("gpt_oss", "smollm3"):
        found = rs.profile(tiny(family), [torch.randint(4, 60, (12,))])
        assert np.isfinite(found.positional_permuted).all()
    still = found.frequency.isnull().any("plane")
    assert still.any()
    assert not still.all()
    moving = found.sel(layer=~still)
    assert np.isfinite(moving.plane_norm).all()
    assert (found.sel(layer=still).symbolic > 1 - 1e-9).all()  # nothing tells places apart


def test_rows_are_stored_as_they_come(tmp_path):
    adapter = rs.Adapter(smollm2().model)
    prompts = rs.binding_prompts(smollm2().tokenizer, 3, pairs=4)
    settings, config = Scoring(planes=False, sensitivity=False), {"model": "m"}
    first = next(cached_rows(adapter, prompts, settings, config, tmp_path))
    kept = sorted((tmp_path / "inputs").iterdir())
    assert [path.name for path in kept] == ["00000.safetensors"]
    written = kept[0].stat().st_mtime_ns
    rows = list(cached_rows(adapter, prompts, settings, config, tmp_path))
    assert kept[0].stat().st_mtime_ns == written
    np.testing.assert_array_equal(rows[0]["positional"], first["positional"])
    whole = dataset(rows, {})
    kept[0].write_bytes(kept[0].read_bytes()[:100])  # cut short: made again
    again = dataset(list(cached_rows(adapter, prompts, settings, config, tmp_path)), {})
    assert whole.equals(again)
    with pytest.raises(ValueError, match="profile of another model"):
        next(cached_rows(adapter, prompts, settings, {"model": "other"}, tmp_path))


def test_packed_and_read(tmp_path):
    path = tmp_path / "profile.nc"
    path.write_bytes(packed(scores()))
    back = runs.read_profile(path)
    np.testing.assert_allclose(back.positional, scores().positional, atol=1e-7)
    np.testing.assert_allclose(back.plane_norm.mean("input"), scores().plane_norm.mean("input"), rtol=1e-6)
    assert back.right.dtype == bool
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="holds no profile that can be read"):
        runs.read_profile(path)


def test_details_of_heads():
    adapter = rs.Adapter(smollm2().model)
    heads = examples(scores())
    assert set(heads) == {"positional", "symbolic", "mixed"}
    rows = head_details(adapter, prompt(), heads, tau=1e-4)
    layer, head = heads["symbolic"]
    last = [row for row in rows["path"] if row["kind"] == "symbolic"][-1]
    found = rs.profile(adapter, [prompt()], planes=False, sensitivity=False).sel(layer=layer, head=head).isel(input=0)
    assert last["kept"] == 32
    assert last["symbolic"] == pytest.approx(float(found.symbolic))  # all planes together are the head
    traces = [row for row in rows["traces"] if row["kind"] == "symbolic"]
    as_it_is = [row["weight"] for row in traces if row["swap"] == "as it is"]
    assert sum(as_it_is) * 4 == pytest.approx(float(found.on_blocks), rel=1e-6)  # means over four tokens each
    assert {row["what"] for row in rows["geometry"]} == {"query", "key"}


def test_command(tmp_path):
    folder = str(real.folder("smollm2-135m"))
    arguments = ["profile", folder, "--count", "3", "--pairs", "4", "--out", str(tmp_path / "run")]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "prompts, " in done.stderr  # what it will cost
    results = check_summary(tmp_path / "run", "profile")["results"]
    assert results["inputs"] == 3
    assert results["worst_check_error"] < 1e-5
    assert "claims" not in results  # they are judged by the rules of the scoreboard, whenever they are shown
    for row in rs.open_run(tmp_path / "run").claims():
        assert row.claim in done.stdout
    assert "A-4-correlation" in done.stdout
    for name in ("heads", "heat-maps", "planes-of-heads", "traces", "path", "geometry"):
        assert (tmp_path / "run" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<script src=" not in (tmp_path / "run" / f"{name}.html").read_text()
    subject = json.loads((tmp_path / "run" / "playground.json").read_text())["subjects"][0]
    assert (subject["name"], len(subject["blocks"]), len(subject["layers"])) == ("binding prompt", 4, 30)
    (tmp_path / "run" / "inputs" / "00001.safetensors").unlink()
    before = (tmp_path / "run" / "profile.nc").read_bytes()
    assert run(*arguments).returncode == 0
    assert (tmp_path / "run" / "profile.nc").read_bytes() == before
    other = run(*arguments, "--tau", "0.1")
    assert other.returncode == 2
    assert "another model, prompts or settings" in other.stderr


def test_command_on_a_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The cat sat.\nThe dog ran.\nA bird flew.\nThe cat\n\nOne two three.\nFour five six.\nSeven\n")
    done = run(
        "profile",
        str(real.folder("stories15M")),
        "--prompts",
        str(text),
        "--no-planes",
        "--no-sensitivity",
        "--out",
        str(tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    summary = check_summary(tmp_path / "run", "profile")
    prompts = summary["config"]["prompts"]
    assert len(prompts.pop("sha256")) == 64  # another text of this name is another profile
    assert prompts == {"kind": "text.txt", "count": 2, "blocks": "line"}
    assert summary["results"]["inputs"] == 2
    names = {path.stem for path in (tmp_path / "run").glob("*.png")}
    assert {"heads", "depth", "traces"} <= names
    assert not names & {"planes", "planes-of-heads", "norms", "head", "sensitivity"}  # not measured, so not drawn
    assert "A-4" not in done.stdout, "paper A's claims are about its own prompts"


def test_a_run_folder_from_python(tmp_path):
    """The same numbers with and without a folder, and a folder like that of the command."""
    model, ids = rs.bundled("number"), [torch.arange(start, start + 17) for start in range(4)]
    alone = rs.profile(model, ids, permutations=20, seed=3)
    written = rs.profile(model, ids, permutations=20, seed=3, out=tmp_path / "run", name="number model")
    assert alone.equals(written)
    summary = check_summary(tmp_path / "run", "profile")
    assert (summary["config"]["permutations"], summary["config"]["seed"]) == (20, 3)
    assert summary["config"]["model"]["source"] == summary["results"]["model"] == "number model"
    result = rs.open_run(tmp_path / "run")
    np.testing.assert_allclose(result.dataset.symbolic, alone.symbolic, atol=1e-6)
    assert {"heads", "planes", "traces"} <= set(result.figures())
    assert result.headline.startswith("number model, 4 prompts")
    assert "heads: " in str(result.table())
    rs.page([tmp_path / "run"], tmp_path / "page.html")
    assert rs.profile(model, ids, permutations=20, seed=3, out=tmp_path / "run", name="number model").equals(alone)
    with pytest.raises(ValueError, match="another model, prompts or settings"):
        rs.profile(model, ids[:2], permutations=20, seed=3, out=tmp_path / "run", name="number model")
    other = rs.profile(model, ids, permutations=20, seed=4)
    assert not other.symbolic_permuted.equals(alone.symbolic_permuted)
    assert other.symbolic.equals(alone.symbolic)


def test_the_command_is_a_call(tmp_path):
    result = rs.run(
        "profile", model=str(real.folder("stories15M")), count=2, pairs=4, planes=False, sensitivity=False, progress=False
    )
    loaded = rs.load_model(str(real.folder("stories15M")))
    prompts = rs.binding_prompts(loaded.tokenizer, 2, pairs=4)
    expected = rs.profile(loaded.model, prompts, planes=False, sensitivity=False)
    np.testing.assert_allclose(result.dataset.positional, expected.positional, atol=1e-6)
    assert {row.claim for row in result.claims()} >= {"A-4-correlation", "ours-5-diagonal"}


class TestBadInput:
    @pytest.mark.parametrize(
        ("model", "says"),
        [
            ("nowhere.gguf", "nowhere.gguf does not exist"),
            ("/dev/null/model", "neither a folder nor a GGUF file nor a hub id"),
            ("nothing", "neither a folder nor a GGUF file nor a hub id"),
        ],
    )
    def test_no_such_model(self, model, says):
        with pytest.raises(ValueError, match=says):
            rs.load_model(model)

    def test_folder_without_a_tokenizer(self, tmp_path):
        """`transformers` makes up an empty one, which reads every text as nothing."""
        (tmp_path / "text.txt").write_text("a b\nc d\ne f\ng")
        folder = str(bundled_folder("number"))
        assert rs.load_model(folder).tokenizer is None
        for prompts in ("binding", "number", str(tmp_path / "text.txt")):
            with pytest.raises(ValueError, match="comes without a tokenizer"):
                cli.app(["profile", folder, "--prompts", prompts, "--out", str(tmp_path / "out")], standalone_mode=False)

    def test_folder_without_a_model(self, tmp_path):
        with pytest.raises(ValueError, match=r"holds no config\.json"):
            rs.load_model(str(tmp_path))

    def test_damaged_files(self, tmp_path):
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(b"GGUF" + bytes(100))
        with pytest.raises(ValueError, match="cannot be opened as a causal language model"):
            rs.load_model(str(broken))

    def test_encoder_only(self, tmp_path):
        config = transformers.BertConfig(
            vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
        with pytest.raises(rs.RefusedError, match="later tokens"):
            rs.Adapter(rs.load_model(str(tmp_path)).model)

    def test_unknown_precision(self):
        with pytest.raises(ValueError, match="dtype must be"):
            rs.load_model("x/y", dtype="int8")

    def test_command_line(self, tmp_path):
        folder = str(real.folder("stories15M"))
        one_line = tmp_path / "one.txt"
        one_line.write_text("just one line")
        for arguments, says in (
            (["--pairs", "100"], "the model reads at most 256"),
            (["--prompts", str(tmp_path / "missing.txt")], "cannot be read"),
            (["--prompts", str(one_line)], "give at least 2"),
            (["--lengths", "long"], "lengths must be"),
            (["--tau", "0"], "tau must be a positive number"),
            (["--chat"], "chat"),
        ):
            done = run("profile", folder, "--count", "2", "--out", str(tmp_path / "out"), *arguments)
            assert done.returncode == 2, (arguments, done.stderr)
            assert says in done.stderr
            assert "Traceback" not in done.stderr

    def test_prompts_that_are_none(self):
        model = rs.bundled("number")
        with pytest.raises(ValueError, match="at least one prompt"):
            rs.profile(model, [])
        with pytest.raises(ValueError, match="one sequence of at least 4 token ids"):
            rs.profile(model, [np.zeros((2, 17), dtype=np.int64)])


def test_bench(tmp_path):
    done = run(
        *("bench", "profile", "--model", str(real.folder("stories15M")), "--pairs", "8", "--texts", "60", "--rounds", "1"),
        *("--out", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    found = check_summary(tmp_path, "bench")["results"]
    assert found["58"]["moves"] == "tokens"
    assert found["58"]["planes_over_plain"] > 0
    row = found["8"]
    assert 0 < row["plane_error"] <= 1e-3
    assert row["swaps"] == 28
    assert row["scored_over_plain"] > 0
    assert row["faster_than_rerunning"] > 0
    assert run("bench", "profile", "--out", str(tmp_path)).returncode == 2
    assert json.loads((tmp_path / "summary.json").read_text())["config"]["model"]["family"] == "llama"
