"""The study of windows: its statistics against slow ones, its trials, its files, and the command as a user gives it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from real import folder
from scipy.stats import spearmanr
from typer.testing import CliRunner

import ropescope as rs
from ropescope.cli import app
from ropescope.studies.conformance.families import tiny
from ropescope.studies.windows import calibrate
from ropescope.studies.windows.compare import compared, correlation
from ropescope.studies.windows.gates import mixed, trained_gates
from ropescope.studies.windows.rankings import RANKINGS, key_head_scores, needs, order, windowed_count
from ropescope.studies.windows.run import _candidates, _files
from ropescope.studies.windows.single import SingleHeads
from ropescope.studies.windows.trials import Trials, groups_of
from ropescope.tasks.retrieval import Context, Question, retrieval_contexts

SINKS, WINDOW = 2, 3


def tiny_context(seed: int = 0) -> Context:
    rng = np.random.default_rng(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(4, 60, count).tolist())

    return Context(ids(30), tuple(Question(ids(size), 2, (3, 5)) for size in (5, 6, 5)))


def random_heads(alibi: bool = False) -> rs.Heads:
    torch.manual_seed(0)
    queries, keys = torch.randn(1, 4, 20, 8, dtype=torch.float64), torch.randn(1, 2, 20, 8, dtype=torch.float64)
    return rs.Heads(queries, keys, rs.Rope(head_dim=8), scale=8**-0.5)


def test_statistics_of_a_query_are_those_of_its_matrix():
    """From the whole matrix M, key by key: what stands at a far place is really replaced."""
    heads, at = random_heads(), 17
    found = calibrate._at_query(heads, at, SINKS, WINDOW)
    M = rs.layer_logits(heads, at)[0]
    far = range(SINKS, at + 1 - WINDOW)
    for head in range(4):
        real = M[head].diagonal()
        weights = real.softmax(-1)
        torch.testing.assert_close(found["mass"][head], sum(weights[p] for p in far))
        best, kept = [], []
        for place in far:
            moved = []
            for content in range(at):
                logits = real.clone()
                logits[place] = M[head, content, place]
                moved.append(float(logits.softmax(-1)[place]))
            best.append(max(moved))
            kept.append(sum(float(weights[content]) * moved[content] for content in range(SINKS, at)))
        assert float(found["reach"][head]) == pytest.approx(np.mean(best), abs=1e-9)
        assert float(found["follow"][head]) == pytest.approx(np.mean(kept), abs=1e-9)
        spread = np.mean([M[head, :at, place].var(correction=0) for place in far])
        assert float(found["far_variance"][head]) == pytest.approx(float(spread), abs=1e-9)
    shares = rs.variance_shares(torch.nn.functional.pad(M[:, :at, :at], (0, 1, 0, 1))).position
    torch.testing.assert_close(found["position_share"], shares)


def test_mean_vectors_are_attention_over_one_key_repeated():
    heads = random_heads()
    query, key = heads.queries[0].mean(1), heads.keys[0].mean(1)
    n = calibrate.REPEATED
    repeated = rs.Heads(
        query[None, :, None].expand(-1, -1, n, -1), key[None, :, None].expand(-1, -1, n, -1), heads.rope, heads.scale
    )
    weights = rs.attention_weights(repeated, torch.tensor([n - 1]))[0, :, 0]
    expected = torch.stack([weights[:, : k + 1].sum(-1) for k in range(n)], -1).mean(-1)
    torch.testing.assert_close(calibrate.mean_vector_score(heads), expected)


def test_a_head_that_copies_is_found():
    """With weights by hand: the model's own argmax at the positions that predict the answer."""
    model = tiny("llama")
    adapter = rs.Adapter(model)
    model.set_attn_implementation("eager")
    question = Question((4, 5, 4, 5), 2, (3, 25))  # few tokens, so that many heads copy by chance
    context = Context(tuple(4 + token % 2 for token in tiny_context().ids), (question,))
    ids = torch.tensor([context.ids + question.ids])
    with torch.no_grad():
        attentions = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    end, expected = ids.shape[1], []
    for weights in attentions:
        rows = [[weights[0, h, t].argmax().item() for t in (end - 3, end - 2)] for h in range(4)]
        hit = [
            [ids[0, top] == ids[0, t + 1] and 3 <= top < 25 for top, t in zip(row, (end - 3, end - 2), strict=True)]
            for row in rows
        ]
        expected.append(np.mean(hit, 1))
    np.testing.assert_array_equal(calibrate.copied(adapter, context, question), np.array(expected))
    assert 0 < np.mean(expected) < 1


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
@pytest.mark.parametrize("full", [False, True])
def test_one_head_alone_is_measured_as_with_all_layers(family, full):
    adapter, contexts = rs.Adapter(tiny(family)), {"binding": [tiny_context(), tiny_context(1)]}
    whole, single = Trials(adapter, contexts, [], full), SingleHeads(adapter, contexts, full)
    for row, layer in enumerate(adapter.layers):
        changes = rs.window_heads([(layer, 1)], SINKS, WINDOW)
        expected, found = whole.measure(changes), single.measure(row, changes)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-9)


def test_answers_are_those_of_every_question_alone():
    """Contexts of equal length are read in one batch; the third is longer."""
    adapter, context, other = rs.Adapter(tiny("llama")), tiny_context(), tiny_context(1)
    contexts = [context, other, Context((*context.ids, 7), other.questions[1:])]
    assert [len(group) for group in groups_of(contexts)] == [2, 1]
    changes = rs.window_heads([(0, 0), (1, 1)], SINKS, WINDOW)
    found = Trials(adapter, {"x": contexts}, [torch.tensor(context.ids)]).measure(changes)
    with torch.no_grad(), rs.intervene(adapter, changes):
        for n, (one, question) in enumerate((each, question) for each in contexts for question in each.questions):
            ids = torch.tensor([one.ids + question.ids])
            logs = adapter.model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            nats = sum(float(logs[t - 1, ids[0, t]]) for t in range(ids.shape[1] - 2, ids.shape[1]))
            assert found["x: log probability"][n] == pytest.approx(nats, abs=1e-9)
        ids = torch.tensor([context.ids])
        logs = adapter.model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    losses = [-float(logs[t - 1, ids[0, t]]) for t in range(1, ids.shape[1])]
    np.testing.assert_allclose(found["prose: loss"][0], losses, atol=1e-5)


def test_windows_after_a_full_prefill_change_the_questions_alone():
    adapter, contexts = rs.Adapter(tiny("llama")), [tiny_context(), tiny_context(1)]
    trials, changes = Trials(adapter, {"x": contexts}, [], full=True), rs.window_heads([(0, 0), (1, 1)], SINKS, WINDOW)
    first, found, again = trials.measure({}), trials.measure(changes), trials.measure({})
    np.testing.assert_array_equal(first["x: log probability"], again["x: log probability"])
    with torch.no_grad():
        for n, (context, question) in enumerate((each, question) for each in contexts for question in each.questions):
            cache = adapter.model(input_ids=torch.tensor([context.ids]), use_cache=True).past_key_values
            with rs.intervene(adapter, changes):
                logs = adapter.model(input_ids=torch.tensor([question.ids]), past_key_values=cache).logits[0].log_softmax(-1)
            nats = sum(float(logs[t - 1, question.ids[t]]) for t in range(len(question.ids) - 2, len(question.ids)))
            assert found["x: log probability"][n] == pytest.approx(nats, abs=1e-9)


def test_gates_of_zero_are_windows_and_training_keeps_what_is_needed():
    adapter, ids = rs.Adapter(tiny("llama")), torch.tensor([tiny_context().ids])
    gates = torch.ones(len(adapter.layers), 2)
    gates[0, 1] = 0
    with torch.no_grad():
        with mixed(adapter, gates, SINKS, WINDOW):
            shown = adapter.model(input_ids=ids, use_cache=False).logits
        with rs.intervene(adapter, rs.window_heads([(0, 1)], SINKS, WINDOW)):
            expected = adapter.model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(shown, expected, atol=1e-9, rtol=0)
    settings = SimpleNamespace(sinks=SINKS, window=WINDOW)
    subject = SimpleNamespace(adapter=adapter, settings=settings, needles=[tiny_context()], key_heads=2)
    found = trained_gates(subject, 12)
    assert ((found["gates"] >= 0) & (found["gates"] <= 1)).all()
    assert len(set(found["gates"].ravel().tolist())) > 1
    assert all(parameter.requires_grad for parameter in adapter.model.parameters())
    wide = trained_gates(SimpleNamespace(**vars(subject) | {"settings": SimpleNamespace(sinks=0, window=99)}), 12)
    assert (wide["gates"] < 0.5).all()  # nothing is lost, so that only the penalty acts


def test_sliding_layers_are_not_candidates():
    adapter = rs.Adapter(tiny("gemma3_text"))
    subject = SimpleNamespace(adapter=adapter, key_heads=2)
    free = _candidates(subject, SimpleNamespace(tokens=100))
    kinds = [adapter.model.config.layer_types[layer] for layer in adapter.layers]
    assert free.tolist() == [[kind == "full_attention"] * 2 for kind in kinds]
    assert not free.all()
    assert _candidates(subject, SimpleNamespace(tokens=5)).all()  # a window of 6 hides nothing there


def test_the_order_and_the_pattern_say_the_same():
    scores = np.array([[0.3, -1.0], [0.9, 0.2], [5.0, 5.0]])
    candidates = np.array([[True, True], [True, True], [False, False]])
    ranked = order(scores, candidates)
    assert ranked == [(0, 1), (1, 1), (0, 0), (1, 0)]
    need = needs(ranked, scores.shape)
    assert need.tolist() == [[pytest.approx(2 / 3), 0], [1, pytest.approx(1 / 3)], [1, 1]]
    # kvpress: the lowest scores, as many as the ratio says
    assert windowed_count(0.5, 4) == 2
    assert {tuple(map(int, np.unravel_index(n, need.shape))) for n in np.argsort(need, axis=None)[:2]} == {(0, 1), (1, 1)}


def test_key_heads_have_the_mean_of_their_query_heads():
    found = {name: np.arange(8.0).reshape(2, 4) for name in ("symbolic", "positional", "mass", "reach", "reach_last")}
    found |= {
        name: np.ones((2, 4)) for name in ("position_share", "far_variance", "retrieval", "mean_vectors", "entropy", "follow")
    }
    assert key_head_scores(RANKINGS["mass"], found, 2).tolist() == [[0.5, 2.5], [4.5, 6.5]]
    for ranking in RANKINGS.values():
        assert key_head_scores(ranking, found, 2).shape == (2, 2)


def test_rankings_are_compared_with_and_without_heads_alone():
    scores = {"lead": np.array([[0.0, 1.0], [2.0, 3.0]]), "mass": np.array([[3.0, 2.0], [1.0, 0.0]])}
    candidates, kinds = np.ones((2, 2), dtype=bool), ("binding: log probability", "passkey: log probability")
    curves = {
        "lead": [
            dict(zip(kinds, (np.array([0, -2, -1, -1.0]), np.full(4, -3.0)), strict=True)),
            dict.fromkeys(kinds, -np.arange(4.0)),
        ]
    }
    before = {name: np.zeros(4) for name in kinds}
    areas = {"areas": {"lead": -1.75}, "areas by context": {"lead": [-1.25, -2.25]}}
    assert compared(scores, candidates, {}, before, curves, 2, 0) == areas
    alone = {(r, h): {name: np.full(2, -1.0 * (2 * r + h)) for name in kinds} for r in (0, 1) for h in (0, 1)}
    found = compared(scores, candidates, alone, before, curves, 2, 0)
    assert found["areas"] == areas["areas"]
    assert found["damage"] == [[0, 1], [2, 3]]
    assert (found["correlations"]["lead"]["rho"], found["correlations"]["mass"]["rho"]) == (1, -1)


@pytest.mark.slow
def test_intervals_of_correlations_hold():
    """Layers are independent, heads of a layer are not: the true correlation lies in about 95 % of intervals."""
    rng, held = np.random.default_rng(0), []
    truth = spearmanr(*_drawn(np.random.default_rng(1), 20_000)).statistic
    for number in range(150):
        scores, harm = (x.reshape(30, 3) for x in _drawn(rng, 30))
        found = correlation(scores, harm, number, resamples=300)
        held.append(found["low"] <= truth <= found["high"])
    assert 0.89 <= np.mean(held) <= 0.99


def _drawn(rng: np.random.Generator, layers: int) -> tuple[np.ndarray, np.ndarray]:
    shared = rng.normal(size=(layers, 1, 2))
    x = rng.normal(size=(layers, 3)) + shared[..., 0]
    return x.ravel(), (0.6 * x + rng.normal(size=(layers, 3)) + shared[..., 1]).ravel()


@pytest.mark.weights
def test_contexts_ask_for_what_they_say():
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(folder("smollm2-135m"))
    for kind in ("binding", "passkey"):
        context = retrieval_contexts(tokenizer, kind, [" ".join(rs.prose(2))], 4, tokens=500, seed=1)[0]
        assert 400 < len(context.ids) <= 500
        for question in context.questions:
            asked, answer = (
                tokenizer.decode(question.ids[: -question.answer]),
                tokenizer.decode(question.ids[-question.answer :]),
            )
            said = tokenizer.decode(context.ids[slice(*question.source)])
            assert said.strip() == answer.strip()
            assert asked.partition(":")[2].strip() + answer + "." in tokenizer.decode(context.ids)
            assert question.source[1] < len(context.ids) - 40
    for tokens, lengths in ((500, 1), (200, 2)):  # the shorter of the short ones ends before the last fact of the other
        contexts = retrieval_contexts(tokenizer, "passkey", rs.prose(2), 3, tokens, seed=2000)
        assert len({len(context.ids) for context in contexts}) == lengths
        for context in contexts:
            for question in context.questions:
                said = tokenizer.decode(context.ids[slice(*question.source)])
                assert said.strip() == tokenizer.decode(question.ids[-question.answer :]).strip()


@pytest.mark.weights
@pytest.mark.slow
def test_the_command_from_nothing_to_the_files(tmp_path):
    out, model = tmp_path / "windows", folder("stories15M")
    small = [
        "--tokens",
        "200",
        "--questions",
        "3",
        "--queries",
        "2",
        "--draws",
        "1",
        "--shares",
        "0.5",
        "--cache-tokens",
        "150",
    ]
    shown = CliRunner().invoke(app, ["windows", str(model), "--keep", "0.5", *small, "--out", str(out)])
    assert shown.exit_code == 0, shown.output
    result = rs.open_run(out)
    answered = [value for name, value in result.summary["results"]["before"].items() if name.endswith(": right")]
    assert ("answers none of the prompts" in shown.output) == (not any(answered))
    split = json.loads((out / "windows.json").read_text())
    assert len(split["windowed"]) == 18
    # As kvpress reads it: numbers with tabs between them, sizes from the JSON file
    scores = np.clip(np.loadtxt(out / "pattern" / "full_attention_heads.tsv", dtype=float, delimiter="\t"), 0, 1)
    sizes = json.loads((out / "pattern" / "config.json").read_text())
    assert (sizes["sink_size"], sizes["recent_size"]) == (16, 64)
    lowest = np.argsort(scores, axis=None)[: round(scores.size * split["head_compression_ratio"])]
    assert {tuple(map(int, np.unravel_index(n, scores.shape))) for n in lowest} == set(map(tuple, split["windowed"]))
    cache = result.summary["results"]["cache"]
    assert cache["windowed_bytes"] < cache["full_bytes"]
    assert cache["logit_difference"] <= 1e-4 * cache["largest_logit"]
    assert result.dataset["need"].dims == ("layer", "key_head")
    assert set(result.figures()) == {"need", "curve"}
    # Again, with another share: what was measured is not measured again.
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    again = rs.run(
        "windows", model=str(model), loss=10.0, tokens=200, questions=3, queries=2, draws=1, shares=0.5, cache_tokens=0, out=out
    )
    assert again.summary["results"]["tried"][0] == {"share": 0.9, "loss": pytest.approx(0, abs=10)}
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_bad_settings_are_refused():
    for given, message in (
        ({"keep": 2}, "keep must be from 0 to 1"),
        ({"loss": -1}, "loss must be at least 0"),
        ({"window": 0}, "window at least 1"),
        ({"ranking": "nonsense"}, "ranking must be one of lead"),
        ({"shares": (2,)}, "shares must be"),
        ({"prefill": "half"}, "prefill must be windowed or full"),
        ({"tokens": 50}, "tokens must be at least"),
        ({"draws": -1}, "draws must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            rs.run("windows", model="weights/none", **given)


def test_kvpress_makes_the_same_split(tmp_path, monkeypatch):
    """Where kvpress is installed: its own press, with the files instead of the address that it downloads from."""
    press = pytest.importorskip("kvpress.presses.duo_attention_press")
    rng, shape = np.random.default_rng(0), (4, 3)
    need = needs([tuple(place) for place in rng.permutation(np.argwhere(np.ones(shape))).tolist()], shape)
    results = {"layers": list(range(4)), "key_heads": 3, "need": need.tolist(), "windowed": np.argwhere(need < 0.5).tolist()}
    files = _files(results, SimpleNamespace(ranking="lead", sinks=4, window=8), {"model": "made"})
    served = {name.partition("/")[2]: text for name, text in files.items()}

    def get(url: str) -> SimpleNamespace:
        text = served[url.rpartition("/")[2]]
        return SimpleNamespace(text=text, json=lambda: json.loads(text))

    monkeypatch.setattr(press.requests, "get", get)
    monkeypatch.setitem(press.PATTERNS_DICT, "made", "made")
    made = press.DuoAttentionPress(head_compression_ratio=json.loads(files["windows.json"])["head_compression_ratio"])
    made.post_init_from_model(SimpleNamespace(config=SimpleNamespace(name_or_path="made"), device="cpu"))
    assert (made.sink_size, made.recent_size) == (4, 8)
    assert torch.nonzero(made.streaming_mask).tolist() == results["windowed"]
