"""Chat models on the number and letter tasks: results by hand, resuming, damaged logs, recorded runs, settings, figures."""

import json
import shutil
from pathlib import Path
from statistics import mean, stdev

import pytest
import real
from chat_oracle import ready, right, solved
from test_cli import check_summary

import ropescope as rs
from ropescope.studies.chat import Settings, figures, grid, scores
from ropescope.studies.chat.asking import answers_in
from ropescope.studies.chat.grid import Grid
from ropescope.studies.chat.scores import Answer
from ropescope.tasks import chat, task_names

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SMALL = Grid(lengths=(12, 16), runs=2, samples=2, max_tokens=4)
SIZES = {"lengths": (12, 16), "runs": 2, "samples": 2, "max_tokens": 4}


def all_questions(asked: Grid) -> list[chat.Question]:
    return [question for cell in asked.cells() for question in asked.cell(*cell)]


def measured(out: Path, **settings) -> dict:
    """Results of a run on the oracle."""
    given = {"model": "oracle/1", "yes": True, "anyway": True, "concurrency": 2, "progress": False, **settings}
    return dict(rs.run("llm", out=out, **given).run.results)


# Results


@pytest.mark.slow
def test_a_perfect_model(tmp_path):
    oracle = ready()
    result = rs.run("llm", model="oracle/1", yes=True, lengths=(12, 16, 100), runs=3, samples=2, out=tmp_path, progress=False)
    found = result.run.results
    assert len(oracle.asked) == len(set(oracle.asked)) == 2 * 3 * 3 * 2
    assert all("pairs" in text for text in oracle.asked[:6]), "the screening comes first"
    assert found["screening"]["passed"]
    assert {cell["mean"] for cells in found["accuracy"].values() for cell in cells.values()} == {1.0}
    assert {cell["single"] for cells in found["accuracy"].values() for cell in cells.values()} == {1.0}
    assert found["usage"] == {"answers": 36, "tokens_in": 3600, "tokens_out": 72, "reasoning": None}
    assert found["with_length"]["letter"] == {"shortest": [12, 1.0], "longest": [100, 1.0], "lost": 0.0, "mean": 1.0}
    verdicts = {row.claim: row.verdict for row in result.claims()}
    assert verdicts == {
        "B-6-letter-above-number": "not",
        "B-6-number-32": "not",
        "B-6-number-100": "not",
        "B-6-letter-100": "reproduced",
        "B-6-screening": "reproduced",
    }
    assert result.study.failed(result.run) == ""
    assert "oracle/1 passes the screening: 1.00 on the letter task" in result.headline
    assert "oracle/1, letter" in str(result.table())


@pytest.mark.slow
def test_numbers_by_hand(tmp_path):
    asked = all_questions(Grid(lengths=(12, 16), runs=3, samples=4))
    # Wrong: of the number task at 12 one in run 1, two in run 2, none in run 3; of the letter task at 16 one of all.
    wrong = {q.text for q in asked if (q.task, q.length) == ("number", 12) and q.sample < (q.run if q.run < 3 else 0)}
    wrong |= {q.text for q in asked if q.key == "letter/16/2/3"}
    ready(says=lambda text: "I do not know" if text in wrong else right(text))
    sizes = {"lengths": (12, 16), "runs": 3, "samples": 4}
    result = rs.run("llm", model="oracle/1", yes=True, anyway=True, out=tmp_path, progress=False, **sizes)
    found = result.run.results
    number = found["accuracy"]["number"]["12"]
    assert number["runs"] == [0.75, 0.5, 1.0]
    assert number["mean"] == pytest.approx(0.75)
    assert number["std"] == pytest.approx(stdev([0.75, 0.5, 1.0]))
    assert (number["right"], number["samples"]) == (9, 12)
    assert number["single"] == pytest.approx(0.75)
    assert number["characters"] == pytest.approx((9 * 1 + 3 * len("I do not know")) / 12)
    assert found["screening"]["accuracy"] == pytest.approx(11 / 12)
    assert not found["screening"]["passed"], "one answer of twelve is no single token"
    assert found["accuracy"]["letter"]["12"]["mean"] == 1
    at = result.dataset.sel(task="number", length=12)
    assert at["accuracy"].values.tolist() == number["runs"]
    assert (float(at["mean"]), float(at["std"]), float(at["single"])) == (number["mean"], number["std"], number["single"])
    assert result.dataset["accuracy"].dims == ("task", "length", "run")


def test_one_run_has_no_spread_and_missing_cells_are_left_out():
    asked = Grid(tasks=("letter",), lengths=(16, 24), runs=1, samples=1)
    answers = {"letter/16/1/0": Answer(asked.cell("letter", 16)[0].answer)}
    found = scores.results(asked, answers, {})
    assert list(found["accuracy"]["letter"]) == ["16"]
    assert found["accuracy"]["letter"]["16"]["std"] is None
    assert scores.screening(asked, {}) is None


@pytest.mark.slow
def test_a_model_that_fails_the_screening_is_not_asked_the_rest(tmp_path):
    oracle = ready(says=lambda text: "a")
    result = rs.run("llm", model="oracle/1", yes=True, out=tmp_path / "out", progress=False, **SIZES)
    assert len(oracle.asked) == 4
    assert result.run.results["accuracy"]["number"] == {}
    assert result.study.failed(result.run).startswith("the model fails the screening, so the rest was not asked: set anyway")
    found = measured(tmp_path / "out", **SIZES)
    assert len(oracle.asked) == 16, "the same folder takes the rest"
    assert len(found["accuracy"]["number"]) == 2
    again = rs.open_run(tmp_path / "out")
    assert again.study.failed(again.run) == ""


def test_nothing_is_sent_unless_told_to(tmp_path, capsys, monkeypatch):
    from ropescope import cli  # noqa: PLC0415

    oracle = ready()
    options = "llm --model oracle/1 --lengths 12,16 --runs 2 --samples 2 --max-tokens 4 --price-in 1 --price-out 2 --out"
    monkeypatch.setattr("sys.argv", ["ropescope", *options.split(), str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    shown, last = capsys.readouterr().err.splitlines()
    assert shown.startswith("16 questions, 0 of them answered already; 16 to ask")
    assert shown.endswith("at the prices given")
    assert last == "ropescope: nothing was sent: set yes to send the questions"
    assert oracle.asked == []
    assert not (tmp_path / "out").exists()


# Resuming


@pytest.mark.slow
def test_a_run_that_broke_off_resumes(tmp_path):
    ready(breaks_after=5)
    with pytest.raises(ValueError, match=r"the server fails \(the oracle is silent\); answers so far are kept, run") as broken:
        measured(tmp_path, concurrency=1, **SIZES)
    assert "\n" not in str(broken.value)
    oracle = ready()
    found = measured(tmp_path, **SIZES)
    assert len(oracle.asked) == 16 - 5
    more = ready()
    assert measured(tmp_path, **(SIZES | {"lengths": (12, 16, 24), "runs": 3}))["usage"]["answers"] == 36
    assert len(more.asked) == 36 - 16, "lengths and runs may be added"
    nobody = ready(breaks_after=0)
    assert measured(tmp_path, **SIZES) == found
    assert nobody.asked == []
    for other in ({"samples": 3}, {"model": "oracle/2"}, {"seed": 2}, {"max_tokens": 5}, {"hops": 2}):
        with pytest.raises(ValueError, match="holds answers of another model or other settings"):
            measured(tmp_path, **(SIZES | other))
    assert nobody.asked == []


def test_ctrl_c_keeps_what_was_answered(tmp_path):
    ready(presses_after=5)
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, concurrency=1, **SIZES)
    oracle = ready()
    assert measured(tmp_path, **SIZES)["usage"]["answers"] == 16
    assert len(oracle.asked) == 16 - 5


@pytest.mark.slow
def test_damaged_logs_are_named_and_their_questions_asked_again(tmp_path, capsys):
    ready()
    found = measured(tmp_path / "whole", **SIZES)
    logs = sorted((tmp_path / "whole" / "logs").glob("*.eval"), key=lambda path: path.stat().st_size)
    assert len(logs) == 2, "the screening, and the rest, which is larger"
    for number, damage in enumerate((lambda b: b[:-40], lambda b: b"", lambda b: b.replace(b"\xb5\x2f", b"\xb5\x2e", 3))):
        out = tmp_path / f"damaged-{number}"
        shutil.copytree(tmp_path / "whole", out)
        log = out / "logs" / logs[0].name
        log.write_bytes(damage(log.read_bytes()))
        assert log.read_bytes() != logs[0].read_bytes()
        capsys.readouterr()
        oracle = ready()
        assert measured(out, **SIZES) == found
        assert len(oracle.asked) == 4
        (line, _) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"ropescope: {log} is damaged (")
        assert line.endswith("): its questions are asked again")


def test_only_answers_to_the_same_words_count(tmp_path):
    ready()
    measured(tmp_path, **SIZES)
    asked = all_questions(SMALL)
    assert answers_in(tmp_path / "logs", asked, print).keys() == {question.key for question in asked}
    changed = [chat.Question(**{**asked[0].__dict__, "text": "something else"}), *asked[1:]]
    assert answers_in(tmp_path / "logs", changed, print).keys() == {question.key for question in asked[1:]}


def test_whatever_a_model_says_can_be_stored(tmp_path):
    odd = 'q "é\u2028"\n\t\x00\x1b[31m<b>'
    ready(says=lambda text: odd)
    measured(tmp_path, **SIZES)
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_bytes().splitlines()]
    assert [row["text"] for row in rows] == [f" {odd}\n"] * 16
    assert rows[0]["key"] == "letter/16/1/0"
    nobody = ready(breaks_after=0)
    measured(tmp_path, **SIZES)
    assert nobody.asked == []


# Settings


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "gpt"}, "model must be PROVIDER/NAME"),
        ({"model": "local/nowhere/at/all"}, "neither a folder"),
        ({"model": "local/x/y", "base_url": "http://127.0.0.1:1"}, "base_url is for servers"),
        ({"tasks": ("number", "word")}, "task must be one of"),
        ({"tasks": ()}, "tasks must hold one"),
        ({"lengths": "16,12"}, "lengths must grow"),
        ({"lengths": "many"}, "each of lengths must be a whole number"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"seed": 0}, "seed must be at least 1"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"reasoning": "much"}, "reasoning must be one of"),
        ({"price_in": 1.0}, "belong together"),
        ({"price_in": -1.0, "price_out": 1.0}, "at least 0"),
        ({"price_in": float("nan"), "price_out": 1.0}, "at least 0"),
        ({"beside": [Path("somewhere")]}, "give this one's profile"),
    ],
)
def test_bad_input(options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        rs.run("llm", **({"model": "local/a/b", "out": tmp_path / "out"} | options))
    assert not (tmp_path / "out").exists()


def test_the_defaults_are_paper_b_s_grid():
    assert Settings("oracle/1").grid == Grid()
    assert Grid().lengths == chat.LENGTHS
    assert Grid().tasks == task_names()


@pytest.mark.weights
def test_the_estimate():
    from transformers import AutoTokenizer  # noqa: PLC0415

    cost = grid.estimate(all_questions(SMALL), 4, price_in=2.0, price_out=10.0)
    assert cost["requests"] == 16
    assert cost["tokens_out_at_most"] == 64
    assert cost["cost_at_most"] == pytest.approx((cost["tokens_in"] * 2 + 64 * 10) / 1e6)
    tokenizer = AutoTokenizer.from_pretrained(real.folder("smollm2-135m"))
    for length in (12, 300):
        for task in task_names():
            text = chat.questions(task, length, 1, 1)[0].text
            assert grid.estimated_tokens(text) == pytest.approx(len(tokenizer(text)["input_ids"]) + 20, rel=0.15)


# Recorded runs and figures


@pytest.mark.parametrize("folder", sorted((ROOT / "results").glob("llm-*")), ids=lambda path: path.name)
def test_recorded_numbers_follow_from_the_recorded_answers(folder):
    result = rs.open_run(folder)
    rows = [json.loads(line) for line in (folder / "answers.jsonl").read_bytes().splitlines()]
    config, said = result.run.config, {row["key"]: row["text"].strip() for row in rows}
    assert config["runs"] == 5
    counted = 0
    for task, cells in result.run.results["accuracy"].items():
        for length, cell in cells.items():
            runs = []
            for number in range(1, 6):
                asked = chat.questions(task, int(length), number, config["samples"])
                runs.append(mean(said[q.key] == solved(task, q.text) for q in asked))
                counted += len(asked)
            assert cell["runs"] == pytest.approx(runs)
            assert cell["mean"] == pytest.approx(mean(runs))
            assert cell["std"] == pytest.approx(stdev(runs))
            assert float(result.dataset["mean"].sel(task=task, length=int(length))) == cell["mean"]
    assert counted == len(said) == result.run.results["usage"]["answers"]


def test_recorded_runs_open_and_are_drawn_and_judged():
    result = rs.open_run(ROOT / "results" / "llm-qwen2.5-coder-0.5b")
    assert list(result.figures()) == ["accuracy", "beside"]
    assert "fails the screening: 0.00 on the letter task" in result.headline
    assert result.study.failed(result.run) == "", "it was asked everything"
    assert [(row.claim, row.verdict) for row in result.claims()] == [("B-6-screening", "not")]
    assert "screening: letter at 16: 0.00 right" in str(result.table())


def test_the_figure_shows_what_was_measured_beside_paper_b(tmp_path):
    ready(says=lambda text: "a" if len(text) % 3 == 0 else right(text))
    found = measured(tmp_path, lengths=(12, 16, 100), runs=2, samples=2)
    drawn = json.dumps(figures.accuracy_figure(found["accuracy"], "<b>oracle</b>", "about").to_dict())
    for task in task_names():
        for length, cell in found["accuracy"][task].items():
            assert f'"length": {length}, "model": "<b>oracle</b>", "mean": {cell["mean"]}' in drawn
    for model, tasks in scores.PAPER.items():
        assert f'"length": 300, "model": "{model}", "mean": {tasks["letter"][-1]}' in drawn


# Local models


@pytest.mark.weights
@pytest.mark.parametrize("name", ["stories15M", "smollm2-135m"])
def test_local_models_answer_as_their_own_generate(name):
    """With what questions share read once, against the model's own `generate` on each; tasks change in between."""
    import torch  # noqa: PLC0415

    from ropescope.studies.chat.local import Local  # noqa: PLC0415

    local = Local(str(real.folder(name)))
    numbers, letters = ([q.text for q in chat.questions(task, 12, 1, 3)] for task in task_names())
    for text in (*numbers, *letters, numbers[0], "Hello?"):
        ids = torch.tensor([local.ids(text)])
        new = local.network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=4, pad_token_id=0
        )
        alone = local.tokenizer.decode(new[0, ids.shape[1] :], skip_special_tokens=True)
        if not local.template:
            alone = alone.partition("\n")[0]
        text_said, tokens_in, tokens_out = local.answer(text, 4)
        assert (text_said, tokens_in) == (alone, ids.shape[1])
        assert tokens_out <= 4
    assert local.template == (name == "smollm2-135m")


@pytest.mark.weights
def test_the_command_on_a_local_model(tmp_path):
    model, profile = f"local/{real.folder('stories15M')}", ROOT / "results" / "profile-stories15M"
    out = tmp_path / "out"
    options = {"lengths": "12,16,64,100,300", "runs": 2, "samples": 2, "max_tokens": 4, "anyway": True, "profile": profile}
    rs.run("llm", model=model, out=out, progress=False, **options)
    summary = check_summary(out, "llm")
    results = summary["results"]
    assert results["too_long"] == {"number": [300], "letter": [100, 300]}, "its context has 256 tokens"
    assert list(results["accuracy"]["letter"]) == ["12", "16", "64"]
    recorded = json.loads((profile / "summary.json").read_text())["results"]["depth"]["symbolic"]["second"]
    assert results["profile"]["symbolic_late"] == recorded
    assert set(summary["sha256"]) == {"config.json", "answers.jsonl", "accuracy.html", "accuracy.png"}
    assert "<script src=" not in (out / "accuracy.html").read_text()
    assert str(real.WEIGHTS / "stories15M") not in (out / "summary.json").read_text()

    # A second model beside it: here the same one.
    rs.run("llm", model=model, out=out, beside=[out], progress=False, **options)
    beside = check_summary(out, "llm")["results"]["beside"]
    assert [one["model"] for one in beside] == ["stories15M", "stories15M"]
    assert (out / "beside.png").read_bytes().startswith(b"\x89PNG")
    for changed, says in (
        ({"profile": ROOT / "results" / "profile-smollm2-135m"}, "of other weights"),
        ({"profile": tmp_path}, "holds no profile"),
        ({"beside": [tmp_path]}, "holds no run of"),
    ):
        with pytest.raises(ValueError, match=says):
            rs.run("llm", model=model, out=out, progress=False, **(options | changed))
