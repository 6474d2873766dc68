"""Forced choice: log probabilities beside a full pass per answer, questions that Python answers, guesses, bad input."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import real
import torch
from test_stale import make_model
from transformers import AutoTokenizer, DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.studies.choice import Settings, forced, scores
from ropescope.studies.choice import run as choice_run
from ropescope.studies.choice.run import Cell, Subject, chosen
from ropescope.studies.choice.tables import pooled
from ropescope.tasks import chat, task_names
from ropescope.tasks.posed import FORMS, posed

SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
ANSWERS = [(5,), (6,), (7, 8), (7, 9), (10, 11, 12), (10, 11, 13), (14, 8)]


def tiny(window: int | None = None):
    """A random model; with a window its layers slide."""
    torch.manual_seed(3)
    if window is None:
        return LlamaForCausalLM(LlamaConfig(vocab_size=40, **SIZES)).eval()
    sizes = {**SIZES, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": window}
    layers = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=40, layer_types=layers, **sizes)).eval()


@torch.inference_mode()
def slowly(model, ids, answer):
    """Log probability of an answer from a pass over text and answer, and whether greedy decoding writes it token by token."""
    logits = model(input_ids=torch.tensor([[*ids, *answer]]), use_cache=False).logits[0].double().log_softmax(-1)
    nats = sum(float(logits[len(ids) + n - 1, token]) for n, token in enumerate(answer))
    said = list(ids)
    for _ in answer:
        said.append(int(model(input_ids=torch.tensor([said]), use_cache=False).logits[0, -1].argmax()))
    return nats, tuple(said[len(ids) :]) == tuple(answer)


# Log probabilities


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("room", [1 << 28, 1])
def test_answers_are_scored_as_by_a_full_pass_each(window, room, monkeypatch):
    """Also in batches of one, with a start that is read before, and where layers slide over less than the text."""
    monkeypatch.setattr(forced, "CACHE", room)
    model = tiny(window)
    ids = torch.randint(0, 40, (17,), generator=torch.Generator().manual_seed(1)).tolist()
    best = int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
    second = int(model(input_ids=torch.tensor([[*ids, best]])).logits[0, -1].argmax())
    answers = [*ANSWERS, (best, second), (best, (second + 1) % 40)]
    expected = [slowly(model, ids, answer) for answer in answers]
    whole = forced.scored(model, ids, answers)
    start = DynamicCache(config=model.config)
    forced.read(model, ids[:9], start)
    for found in (whole, forced.scored(model, ids[9:], answers, start), forced.scored(model, ids[9:], answers, start)):
        np.testing.assert_allclose(found.nats, [nats for nats, _ in expected], atol=1e-4)
        assert found.greedy.tolist() == [greedy for _, greedy in expected]
    assert whole.greedy.sum() == 1, "the greedy answer is among them"
    assert start.get_seq_length() == 9


def test_single_tokens_need_one_pass(monkeypatch):
    model, passes = tiny(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    forced.scored(model, [1, 2, 3], [(token,) for token in range(30)])
    assert len(passes) == 1
    forced.scored(model, [1, 2, 3], [(first, last) for first in range(5) for last in range(7)])
    assert len(passes) == 3, "the text, and five first tokens in one batch"


def test_a_model_without_a_cache_is_refused():
    model = SimpleNamespace(parameters=lambda: iter([torch.zeros(1)]), config=tiny().config)

    class Forgetful(torch.nn.Linear):
        def forward(self, input_ids, past_key_values, logits_to_keep):
            return SimpleNamespace(logits=torch.zeros(1, 1, 4))

    with pytest.raises(ValueError, match="keeps no keys and values"):
        forced.read(Forgetful(1, 1), [1, 2], DynamicCache(config=model.config))


def letters(texts):
    """A tokenizer of single characters, which joins some."""

    class Characters:
        bos_token = None

        def __call__(self, text, add_special_tokens=True):
            for number, joined in enumerate(texts):
                text = text.replace(joined, chr(0x1000 + number))
            return {"input_ids": [ord(letter) for letter in text]}

    return Characters()


def test_answers_that_cannot_be_told_apart_are_refused():
    ids, answers = forced.encoded(letters([]), "List\nAnswer:", [" a", " b1"])
    assert "".join(map(chr, ids)) == "List\nAnswer:"
    assert ["".join(map(chr, each)) for each in answers] == [" a", " b1"]
    with pytest.raises(ValueError, match="joins ' a' with the text before it"):
        forced.encoded(letters([": a"]), "List\nAnswer:", [" a"])
    with pytest.raises(ValueError, match="begin with those of another"):
        forced.encoded(letters([]), "List\nAnswer:", [" a", " ab"])
    with pytest.raises(ValueError, match="begin with those of another"):
        forced.encoded(letters([]), "List\nAnswer:", [" a", " a"])
    with pytest.raises(ValueError, match="splits ' a' differently"):
        forced.encoded(letters(["List\nAnswer: a"]), "List\nAnswer:", [" a"])


@pytest.mark.weights
@pytest.mark.parametrize("name", real.FETCHED)
def test_real_tokenizers_split_text_and_answer_alike(name):
    """The tokens of every answer, found from the last line alone, are those of the whole text."""
    tokenizer = AutoTokenizer.from_pretrained(real.folder(name))
    for task in task_names():
        for form in FORMS:
            for question in chat.questions(task, 24, 1, 2):
                asked = posed(question, form)
                ids, answers = forced.encoded(tokenizer, asked.text, asked.written)
                for written, answer in zip(asked.written, answers, strict=True):
                    whole = tokenizer(asked.text + written, add_special_tokens=False)["input_ids"]
                    assert (*ids, *answer) == (*forced.leading_ids(tokenizer), *whole)


@pytest.mark.weights
def test_a_real_model_chooses_as_by_a_full_pass_each():
    loaded = rs.load_model(str(real.folder("stories15M")))
    for task in task_names():
        for form in FORMS:
            subject = Subject(loaded, Settings("x", lengths=(4,), runs=1, samples=2))
            found = chosen(subject, Cell(form, task, 4))
            for number, question in enumerate(chat.questions(task, 4, 1, 2)):
                asked = posed(question, form)
                ids, answers = forced.encoded(loaded.tokenizer, asked.text, asked.written)
                nats = [slowly(loaded.model, ids, answer)[0] for answer in answers]
                right = asked.options.index(question.answer)
                assert found["right"][number] == (np.argmax(nats) == right)
                assert found["nats"][number] == pytest.approx(nats[right], abs=1e-3)
                assert found["mass"][number] == pytest.approx(np.exp(nats).sum(), rel=1e-3)
                assert found["options"][number] == len(set(question.items[:-1]))


# Questions as Python


@pytest.mark.parametrize("task", task_names())
@pytest.mark.parametrize("length", [12, 300])
def test_python_answers_the_questions(task, length):
    """Every session, run by Python: the values of worked examples are those shown, and the last one is the right answer."""
    for question in chat.questions(task, length, 2, 5):
        asked = posed(question, "python")
        values, names, shown = [], {}, []
        for line in asked.text.splitlines():
            if line.startswith(">>> xs = "):
                names["xs"] = json.loads(line.removeprefix(">>> xs = ").replace("'", '"'))
            elif line.startswith(">>> "):
                values.append(repr(eval(line.removeprefix(">>> "), names)))  # text of our own
            else:
                shown.append(line)
        assert values[:-1] == shown
        assert len(shown) == chat.EXAMPLES
        assert values[-1] == repr(question.answer)
        assert names["xs"] == question.items[:-1]
        assert asked.written[asked.options.index(question.answer)] + "'" == values[-1]
        assert asked.options == tuple(sorted(set(names["xs"])))


def test_questions_in_words_are_those_of_chat_models():
    (question,) = chat.questions("letter", 16, 1, 1)
    asked = posed(question, "words")
    assert asked.text == question.text
    assert asked.written == tuple(f" {item}" for item in asked.options)
    with pytest.raises(ValueError, match="form must be one of words, python"):
        posed(question, "prose")


# Guesses by place


def test_guesses_by_place_beside_every_pair_of_questions():
    rng = np.random.default_rng(0)
    picks, answers = rng.random((6, 9)), rng.integers(2, size=(6, 9))
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    expected = np.mean([sum(picks[i, n] * answers[j, n] for n in range(9)) for i, j in pairs])
    assert scores.by_place(picks, answers) == pytest.approx(expected)
    assert np.isnan(scores.by_place(picks[:1], answers[:1]))


def test_a_model_that_prefers_a_place_is_no_better_than_its_guess(monkeypatch, tmp_path):
    """A model that always takes the item right before the query."""

    def last(model, ids, answers, start=None):
        return forced.Scored(np.array([-1.0 if answer == answers[place[0]] else -5.0 for answer in answers]), np.zeros(99) > 0)

    place = [0]
    usual = choice_run.posed

    def noted(question, form):
        asked = usual(question, form)
        order.append(asked.options.index(question.items[-2]))
        return asked

    order = []
    monkeypatch.setattr(choice_run, "posed", noted)

    def next_one(*given):
        place[0] = order.pop(0)
        return last(*given)

    monkeypatch.setattr(choice_run, "scored", next_one)
    subject = Subject(loaded_at(tmp_path), Settings("x", runs=3, samples=40))
    found = chosen(subject, Cell("words", "letter", 12))
    assert len(found["right"]) == 120
    assert abs(found["right"].mean() - 1 / 12) < 0.1
    assert float(found["by_place"]) == pytest.approx(found["right"].mean(), abs=0.01)


def test_ties_count_in_part(monkeypatch, tmp_path):
    monkeypatch.setattr(
        choice_run, "scored", lambda _, ids, answers, start: forced.Scored(np.zeros(len(answers)), np.zeros(len(answers)) > 0)
    )
    found = chosen(Subject(loaded_at(tmp_path), Settings("x", runs=1, samples=3)), Cell("words", "letter", 12))
    assert found["right"].tolist() == pytest.approx((1 / found["options"]).tolist())


# The study


def spelled(folder, seed=0, context=4096):
    """A tiny model whose tokenizer knows characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    torch.manual_seed(seed)
    characters = {chr(number): number for number in range(10, 127)}
    tokenizer = Tokenizer(models.WordLevel({chr(n): n for n in range(10)} | characters, unk_token="\x00"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    LlamaForCausalLM(LlamaConfig(vocab_size=127, **SIZES, max_position_embeddings=context)).save_pretrained(folder)
    return folder


def loaded_at(folder):
    return rs.load_model(str(spelled(folder)))


def asked(folder, out, **settings):
    given = {"lengths": (4, 6), "runs": 2, "samples": 2, "progress": False, **settings}
    return rs.run("choice", model=str(folder), out=out, **given)


@pytest.mark.slow
def test_a_run_and_its_parts(tmp_path):
    folder = spelled(tmp_path / "model")
    result = asked(folder, tmp_path / "out")
    found = result.run.results["accuracy"]
    cell = found["words"]["letter"]["6"]
    assert cell["mean"] == pytest.approx(np.mean(cell["runs"]))
    assert cell["questions"] == 4
    assert 0 < cell["mass"] < 1
    assert cell["greedy"] <= cell["mean"]
    assert result.dataset["accuracy"].dims == ("form", "task", "length", "run")
    assert float(result.dataset["mean"].sel(form="words", task="letter", length=6)) == cell["mean"]
    assert "words: accuracy of forced choice" in str(result.table())
    four, six = found["words"]["letter"]["4"], cell
    right, count, by_chance = pooled(found["words"]["letter"])
    assert (right, count) == (pytest.approx(4 * four["mean"] + 4 * six["mean"]), 8)
    assert by_chance == pytest.approx(4 * four["chance"] + 4 * six["chance"])
    assert list(result.figures()) == ["accuracy"]
    assert result.headline.startswith("model chooses right: number")
    assert result.run.results["held"] == {form: {"number": None, "letter": None} for form in FORMS}
    other = asked(spelled(tmp_path / "second", seed=1), tmp_path / "both", beside=(tmp_path / "out",))
    assert [model["model"] for model in other.run.results["beside"]] == ["second", "model"]
    assert other.run.results["beside"][1]["accuracy"] == json.loads(json.dumps(dict(found), default=dict))


def test_resumed_and_refused(tmp_path, monkeypatch):
    folder = spelled(tmp_path / "model")
    first = asked(folder, tmp_path / "out").run.results
    done, usual = [], choice_run.chosen
    monkeypatch.setattr(choice_run, "chosen", lambda subject, cell: done.append(cell) or usual(subject, cell))
    assert asked(folder, tmp_path / "out").run.results == first
    assert done == []
    asked(folder, tmp_path / "out", lengths=(4, 6, 8))
    assert {cell.length for cell in done} == {8}
    spelled(tmp_path / "other", seed=1)
    for changes in ({"runs": 3}, {"samples": 3}, {"seed": 2}, {"folder": tmp_path / "other"}):
        with pytest.raises(ValueError, match="answers of another model or other questions"):
            asked(**({"folder": folder, "out": tmp_path / "out"} | changes))


def test_windows_that_do_not_fit_are_left_out(tmp_path):
    result = asked(spelled(tmp_path / "model", context=300), tmp_path / "out", lengths=(4, 60), forms=("words",))
    found = result.run.results
    for task, size in (("number", 1), ("letter", 2)):
        text = chat.questions(task, 4, 1, 1)[0].text
        assert ("4" in found["accuracy"]["words"][task]) == (len(text) + size + 1 <= 300)
        assert 60 in found["too_long"]["words"][task]
    assert "do not fit into the model's context" in str(result.table())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"forms": ("prose",)}, "forms must be among words, python"),
        ({"forms": ()}, "forms must hold one"),
        ({"tasks": ("number", "number")}, "tasks must hold one at least, and none twice"),
        ({"tasks": ("word",)}, "task must be one of"),
        ({"lengths": (16, 12)}, "lengths must grow"),
        ({"lengths": (1, 12)}, "lengths must grow"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"seed": 0}, "seed must be at least 1"),
        ({"model": "nowhere/at/all"}, "neither a folder"),
        ({"dtype": "int4"}, "dtype must be one of"),
    ],
)
def test_bad_input(options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        rs.run("choice", **({"model": "a/b/c", "out": tmp_path / "out"} | options))
    assert not (tmp_path / "out").exists()


def test_bad_folders_beside_it(tmp_path):
    folder = spelled(tmp_path / "model")
    for name, says in (("profile", "holds no profile"), ("beside", "holds no run of `ropescope choice`")):
        value = tmp_path if name == "profile" else (tmp_path,)
        with pytest.raises(ValueError, match=says):
            asked(folder, tmp_path / "out", **{name: value})
    with pytest.raises(ValueError, match="is of other weights"):
        asked(folder, tmp_path / "out", profile=real.WEIGHTS.parent / "results" / "profile-stories15M")
    make_model(tmp_path / "mute")
    for path in (tmp_path / "mute").glob("*token*"):
        path.unlink()
    with pytest.raises(ValueError, match="comes without a tokenizer"):
        asked(tmp_path / "mute", tmp_path / "out")
