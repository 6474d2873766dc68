"""Chat models on the number and letter tasks: questions, journal, a real server with its faults, local models, figures."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace

import pytest
import real
import typer
from chat_server import Door, serving
from test_cli import check_summary, run

from ropescope import cli
from ropescope.experiments import llm as experiment
from ropescope.experiments.llm import Answer, Journal, Settings
from ropescope.models.chat import LocalChat
from ropescope.models.load import load_model
from ropescope.models.remote import RemoteChat, Said, redacted, shown_url
from ropescope.report import llm as figures
from ropescope.tasks import chat, task_names

pytestmark = [  # of Inspect AI's making
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject"),
]

ROOT = Path(__file__).parents[1]
KEY = "sk-loopback-9f8e7d6c5b4a"
SMALL = Settings(lengths=(12, 16), runs=2, samples=2, max_tokens=4)
SIZES = {"lengths": "12,16", "runs": 2, "samples": 2, "max_tokens": 4}


def all_questions(settings: Settings) -> list[chat.Question]:
    return [question for cell in settings.cells() for question in settings.cell(*cell)]


# Questions


def solved(task: str, text: str) -> str:
    """By the words of the question alone."""
    *items, last = text.rsplit("List: ", 1)[1].removesuffix("\nAnswer:").split()
    if task == "number":
        return items[-int(last)]
    (only,) = [item for item in items if item[0] == last[1]]
    return only


@pytest.mark.parametrize("task", task_names())
def test_questions_have_the_answers_they_claim(task):
    for length in chat.LENGTHS:
        asked = chat.questions(task, length, run=1, samples=12)
        assert len({question.text for question in asked}) == 12
        assert len({question.key for question in asked}) == 12
        for question in asked:
            assert solved(task, question.text) == question.answer
            assert len(question.text.rsplit("List: ", 1)[1].split()) == length + 2  # targets, the query, the word Answer
    assert chat.questions(task, 32, 1, 8) == chat.questions(task, 32, 1, 8)
    assert not {q.text for q in chat.questions(task, 32, 1, 8)} & {q.text for q in chat.questions(task, 32, 2, 8)}


@pytest.mark.parametrize("task", task_names())
def test_worked_examples_are_right_and_the_same_for_all(task):
    begin = chat.preamble(task)
    examples = re.findall(r"List: .*\nAnswer: \S+", begin)
    assert len(examples) == 3
    for example in examples:
        text, answer = example.rsplit(" ", 1)
        assert solved(task, text) == answer
    assert all(question.text.startswith(begin) for question in chat.questions(task, 48, 3, 5))
    assert "Output only the" in begin


@pytest.mark.parametrize("task", task_names())
@pytest.mark.parametrize("hops", [2, 4])
def test_multi_hop_questions_can_be_solved(task, hops):
    game = chat.game(task, 12, hops)
    for question in chat.questions(task, 12, 1, 6, hops):
        found = game.solve(game.encode(question.text.rsplit("List: ", 1)[1].removesuffix("\nAnswer:")))
        assert found.hops.tolist() == [hops]
        assert game.decode(found.answer) == [question.answer]


def test_answers_are_matched_exactly_after_trimming():
    (question,) = chat.questions("letter", 16, 1, 1)
    right = question.answer
    assert chat.is_right(question, f" {right}\n")
    assert chat.is_single(question, f" {right}\n")
    for wrong in ("", right.upper(), f"{right}.", f"The answer is {right}", f"{right} {right}", right[0]):
        assert not chat.is_right(question, wrong)
        assert not chat.is_single(question, wrong)
    other = "a1" if right != "a1" else "b1"
    assert chat.is_single(question, other)
    assert not chat.is_right(question, other)


def test_bad_questions():
    for arguments, says in (
        (("word", 12, 1, 1), "task must be"),
        (("number", 1, 1, 1), "length must be at least 2"),
        (("number", 12, 0, 1), "run must be at least 1"),
        (("number", 12, 1, 0), "samples must be at least 1"),
        (("number", 12, 1, 1, 0), "hops must be at least 1"),
    ):
        with pytest.raises(ValueError, match=says):
            chat.questions(*arguments)


# The journal


CONFIG = {"model": {"source": "nobody"}, "samples": 2}


def test_the_journal_keeps_every_answer_once(tmp_path):
    asked = all_questions(SMALL)
    odd = ' "é\u2028"\n\ud800'  # whatever a model may say
    with Journal(tmp_path, CONFIG) as journal:
        journal.add(asked[0], Answer("b", 10, 2))
        journal.add(asked[0], Answer("another", 10, 2))
        journal.add(asked[1], Answer("q" + odd))
        assert journal.missing(asked) == asked[2:]
    assert len((tmp_path / "answers.jsonl").read_bytes().split(b"\n")) == 3
    with Journal(tmp_path, CONFIG) as journal:
        assert journal.missing(asked) == asked[2:]
        assert journal.answers[asked[0].key] == Answer("b", 10, 2)
        assert journal.answers[asked[1].key].text.startswith('q "é')


def test_a_line_cut_off_by_a_crash_is_asked_again(tmp_path):
    asked = all_questions(SMALL)
    with Journal(tmp_path, CONFIG) as journal:
        for question in asked[:3]:
            journal.add(question, Answer("b"))
    path = tmp_path / "answers.jsonl"
    whole = path.read_bytes()
    for cut in (1, 2, 30):
        path.write_bytes(whole[:-cut])
        with Journal(tmp_path, CONFIG) as journal:
            assert journal.missing(asked) == asked[2:]
            journal.add(asked[2], Answer("b"))
        assert path.read_bytes() == whole


def test_damaged_and_foreign_journals_are_refused(tmp_path):
    asked = all_questions(SMALL)
    with Journal(tmp_path, CONFIG) as journal:
        for question in asked[:3]:
            journal.add(question, Answer("b"))
        with pytest.raises(ValueError, match="another process writes to"):
            Journal(tmp_path, CONFIG)
    with pytest.raises(ValueError, match="another model or other settings"):
        Journal(tmp_path, CONFIG | {"samples": 3})
    path = tmp_path / "answers.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"text": "b"', b'"text": "c"', 1))  # somebody helped
    with pytest.raises(ValueError, match=r"line 1 of .* is damaged"):
        Journal(tmp_path, CONFIG)
    path.unlink()
    with Journal(tmp_path, CONFIG) as journal:
        journal.add(asked[0], Answer("b"))
        changed = [chat.Question(**{**asked[0].__dict__, "text": "something else"})]
        with pytest.raises(ValueError, match="answers to other questions"):
            journal.missing(changed)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="holds other files"):
        Journal(tmp_path, CONFIG)


# What comes out


class Oracle:
    """Answers right by the words of the question, but says `wrong` to some; and breaks down after so many answers."""

    def __init__(self, wrong=lambda number, text: False, breaks_after: int | None = None):
        self.wrong, self.breaks_after, self.asked = wrong, breaks_after, []

    def answers(self, questions, max_tokens):
        for number, text in enumerate(questions):
            if self.breaks_after is not None and len(self.asked) >= self.breaks_after:
                raise KeyboardInterrupt
            self.asked.append(text)
            task = "letter" if "pairs" in text else "number"
            said = "I do not know" if self.wrong(number, text) else f" {solved(task, text)}\n"
            yield Said(number, said, 100, 2)


def measured(settings: Settings, oracle: Oracle, folder: Path) -> dict:
    with Journal(folder, experiment.shared_config({"source": "oracle"}, settings)) as journal:
        parts, too_long = experiment.plan(settings, oracle)
        for part in parts:
            for _ in experiment.ask(oracle, journal, part, settings.max_tokens):
                pass
        return experiment.results(settings, journal.answers, too_long)


def test_a_perfect_model(tmp_path):
    settings = Settings(lengths=(12, 16, 100), runs=3, samples=2)
    oracle = Oracle()
    found = measured(settings, oracle, tmp_path)
    assert len(oracle.asked) == len(set(oracle.asked)) == 2 * 3 * 3 * 2
    assert "pairs" in oracle.asked[0], "the screening comes first"
    assert found["screening"]["passed"]
    assert {cell["mean"] for cells in found["accuracy"].values() for cell in cells.values()} == {1.0}
    assert {cell["single"] for cells in found["accuracy"].values() for cell in cells.values()} == {1.0}
    assert [claim["holds"] for claim in found["claims"]] == [False, False, False, True]
    assert found["usage"] == {"answers": 36, "tokens_in": 3600, "tokens_out": 72, "reasoning": None}
    assert found["with_length"]["letter"] == {"shortest": [12, 1.0], "longest": [100, 1.0], "lost": 0.0, "mean": 1.0}


def test_numbers_by_hand(tmp_path):
    settings = Settings(lengths=(12, 16), runs=3, samples=4)
    asked = all_questions(settings)
    # Wrong: of the number task at 12 one in run 1, two in run 2, none in run 3; of the letter task at 16 one of all.
    wrong = {q.text for q in asked if (q.task, q.length) == ("number", 12) and q.sample < (q.run if q.run < 3 else 0)}
    wrong |= {q.text for q in asked if q.key == "letter/16/2/3"}
    found = measured(settings, Oracle(lambda _, text: text in wrong), tmp_path)
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


def test_one_run_has_no_spread_and_missing_cells_are_left_out(tmp_path):
    settings = Settings(tasks=("letter",), lengths=(16, 24), runs=1, samples=1)
    found = measured(settings, Oracle(), tmp_path)
    assert found["accuracy"]["letter"]["16"]["std"] is None
    assert found["claims"][1]["holds"] is None
    del found
    answers = {"letter/16/1/0": Answer(settings.cell("letter", 16)[0].answer)}
    assert list(experiment.accuracy(settings, answers)["letter"]) == ["16"]
    assert experiment.screening(settings, {}) is None


def test_an_interrupted_grid_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measured(SMALL, Oracle(breaks_after=5), tmp_path)
    oracle = Oracle()
    found = measured(SMALL, oracle, tmp_path)
    assert len(oracle.asked) == 16 - 5
    more = Oracle()
    wider = Settings(lengths=(12, 16, 24), runs=3, samples=2, max_tokens=4)
    assert measured(wider, more, tmp_path)["usage"]["answers"] == 36
    assert len(more.asked) == 36 - 16, "lengths and runs may be added"
    assert measured(SMALL, Oracle(breaks_after=0), tmp_path)["accuracy"] == found["accuracy"]


def test_paper_b_bears_out_its_own_claims():
    for model, tasks in experiment.PAPER.items():
        table = {
            task: {str(n): {"mean": x} for n, x in zip(experiment.PAPER_LENGTHS, tasks[task], strict=True)} for task in tasks
        }
        assert all(claim["holds"] for claim in experiment.claims(table, True)), model
    assert experiment.PAPER["GPT 5.4"]["letter"][experiment.PAPER_LENGTHS.index(300)] == 0.40
    assert experiment.PAPER["Claude Sonnet 3.7"]["number"][0] == 0.40


def test_the_estimate(tmp_path):
    asked = all_questions(SMALL)
    cost = experiment.estimate(asked, 4, price_in=2.0, price_out=10.0)
    assert cost["requests"] == 16
    assert cost["tokens_out_at_most"] == 64
    assert cost["cost_at_most"] == pytest.approx((cost["tokens_in"] * 2 + 64 * 10) / 1e6)
    tokenizer = load_tokenizer("smollm2-135m")
    for length in (12, 300):
        for task in task_names():
            text = chat.questions(task, length, 1, 1)[0].text
            assert experiment.reckoned_tokens(text) == pytest.approx(len(tokenizer(text)["input_ids"]) + 20, rel=0.15)
    for prices in ((1.0, None), (-1.0, 1.0), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="--price-in and --price-out"):
            experiment.check_prices(*prices)


def load_tokenizer(name: str):
    from transformers import AutoTokenizer  # noqa: PLC0415

    return AutoTokenizer.from_pretrained(real.folder(name))


# A real server


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    with serving(real.folder("smollm2-135m"), tmp_path_factory.mktemp("server") / "log.txt") as address:
        yield address


@pytest.fixture
def door(upstream, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    opened = Door(upstream, str(real.folder("smollm2-135m")))
    yield opened
    opened.shutdown()
    opened.server_close()


@pytest.fixture
def closed_door(monkeypatch):
    """One that never gets as far as a model."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    opened = Door(None)
    yield opened
    opened.shutdown()
    opened.server_close()


def command(url: str, out: Path, *more: str) -> list[str]:
    options = [text for name, value in SIZES.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return ["llm", "--model", "openai/smollm2", "--base-url", url, "--out", str(out), *options, *more]


def here(url: str, out: Path, **more) -> None:
    """The same in this process, which has loaded everything already."""
    cli.llm("openai/smollm2", url, out, **(SIZES | more))


def journal_lines(out: Path) -> list[dict]:
    path = out / "answers.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")] if path.exists() else []


def assert_no_key(folder: Path, *texts: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert not any(KEY in text for text in texts)


@pytest.fixture(scope="module")
def killed(upstream, tmp_path_factory):
    """A grid on a server that fails as servers do, its client killed in the middle of it, and run again to the end."""
    out, door = tmp_path_factory.mktemp("grid") / "out", Door(upstream, str(real.folder("smollm2-135m")))
    door.faults = [None, 429, 500, None, "drop", 503, None]
    start = "import sys; from ropescope.cli import main; sys.argv = ['ropescope', *sys.argv[1:]]; main()"
    arguments = command(door.url, out, "--yes", "--anyway", "--concurrency", "2", "--timeout", "20")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        client = subprocess.Popen([sys.executable, "-c", start, *arguments], stderr=subprocess.PIPE, text=True)
        while len(journal_lines(out)) < 5 and client.poll() is None:
            time.sleep(0.05)
        client.send_signal(signal.SIGKILL)
        said = client.communicate()[1]
        kept = {row["key"] for row in journal_lines(out)}
        assert 5 <= len(kept) < 16, said
        before = len(door.received)
        door.faults = ["hang"]
        done = run(*arguments)
    yield SimpleNamespace(out=out, door=door, kept=kept, before=before, done=done)
    door.shutdown()
    door.server_close()


QUESTIONS = {question.text: question for question in all_questions(SMALL)}


def test_nothing_is_asked_or_counted_twice(killed):
    assert killed.done.returncode == 0, killed.done.stderr
    assert killed.door.faults == []
    asked_again = {QUESTIONS[text].key for text in killed.door.received[killed.before :]}
    assert not asked_again & killed.kept, "what was answered before the kill is not asked again"
    lines = Counter(row["key"] for row in journal_lines(killed.out))
    assert lines == Counter(question.key for question in QUESTIONS.values())
    assert 16 <= len(killed.door.answered) <= 16 + 2, "paid twice is at most what was under way at the kill"
    assert f"16 questions, {len(killed.kept)} of them answered already" in killed.done.stderr


def test_the_numbers_are_those_of_the_answers_given(killed):
    results = check_summary(killed.out, "llm")["results"]
    given = dict(killed.door.answered)
    for task, cells in results["accuracy"].items():
        assert list(cells) == ["12", "16"]
        for length, cell in cells.items():
            asked = [q for q in QUESTIONS.values() if (q.task, q.length) == (task, int(length))]
            assert cell["runs"] == [mean(given[q.text].strip() == q.answer for q in asked if q.run == run) for run in (1, 2)]
            assert cell["samples"] == len(asked) == 4
            assert cell["characters"] == mean(len(given[q.text].strip()) for q in asked)
    assert results["usage"]["answers"] == 16
    assert results["usage"]["tokens_out"] <= 16 * 4
    assert not results["screening"]["passed"]
    assert "screening: letter at 16" in killed.done.stdout


def test_a_whole_grid_asks_nothing_and_says_the_same(killed, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    before, results = len(killed.door.received), check_summary(killed.out, "llm")["results"]
    here(killed.door.url, killed.out, anyway=True)
    assert len(killed.door.received) == before
    assert check_summary(killed.out, "llm")["results"] == results
    assert capsys.readouterr().out == killed.done.stdout


def test_no_key_is_kept_or_said(killed):
    assert killed.door.keys == {f"Bearer {KEY}"}
    assert_no_key(killed.out, killed.done.stderr, killed.done.stdout)


def test_the_model_says_the_same_here_as_behind_a_server(killed):
    local = LocalChat(load_model(str(real.folder("smollm2-135m"))))
    asked = [question for question in QUESTIONS.values() if question.length == 12]
    given, lines = dict(killed.door.answered), {row["key"]: row for row in journal_lines(killed.out)}
    for said in local.answers([question.text for question in asked], 4):
        question = asked[said.question]
        assert said.text.strip() == given[question.text].strip() == lines[question.key]["text"].strip()
        assert said.tokens_in == lines[question.key]["tokens_in"]


def test_nothing_is_sent_unless_told_to(closed_door, tmp_path, capsys):
    here(closed_door.url, tmp_path / "out", price_in=1.0, price_out=2.0)
    said = capsys.readouterr().err
    assert "16 questions, 0 of them answered already; 16 to ask" in said
    assert "at the prices given" in said
    assert "nothing was sent: add --yes to go on" in said
    assert closed_door.received == []


def test_a_model_that_fails_the_screening_is_not_asked_the_rest(door, tmp_path, capsys):
    with pytest.raises(typer.Exit) as left:
        here(door.url, tmp_path / "out", runs=1, yes=True)
    assert left.value.exit_code == 1
    assert "fails the screening, so the rest was not asked: add --anyway" in capsys.readouterr().err
    assert len(door.answered) == 2
    results = check_summary(tmp_path / "out", "llm")["results"]
    assert results["screening"]["passed"] is False
    assert results["accuracy"]["number"] == {}


def test_ctrl_c_keeps_what_was_under_way(door):
    """As asyncio sees it: the first Ctrl-C while two requests are under way."""
    chat_model, said = RemoteChat("openai/smollm2", door.url, concurrency=2), []

    def press():
        while len(door.received) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        said.extend(chat_model.answers(list(QUESTIONS), 4))
    assert len(said) == len(door.answered) == len(door.received) < 16


def test_inspect_ai_evaluates_the_same_questions(door, tmp_path):
    from inspect_ai import eval as evaluate  # noqa: PLC0415
    from inspect_ai.model import get_model  # noqa: PLC0415

    from ropescope.experiments.llm_tasks import letter_one_hop  # noqa: PLC0415

    model = get_model("openai-api/openai/smollm2", base_url=door.url, memoize=False)
    task = letter_one_hop(lengths=[12], runs=2, samples=1)
    (log,) = evaluate(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    asked = Settings(("letter",), (12,), 2, 1).cell("letter", 12)
    assert Counter(text for text, _ in door.answered) == Counter(question.text for question in asked)
    said = dict(door.answered)
    for sample in log.samples:
        (score,) = sample.scores.values()
        assert score.value["right"] == (said[sample.input].strip() == sample.target)
        assert score.answer == said[sample.input].strip()
    assert_no_key(tmp_path)


def test_tasks_are_found_by_name(tmp_path):
    """As Inspect AI finds them: by the entry point of the installed package, where no folder has its name."""
    names = ("number_one_hop", "letter_one_hop", "number_multi_hop", "letter_multi_hop")
    code = (
        "import json, sys; from inspect_ai._eval.loader import load_tasks\n"
        "given = {'lengths': '12,16', 'runs': 1, 'samples': 1}\n"
        "found = [load_tasks([f'ropescope/{name}'], given) for name in sys.argv[1:]]\n"
        "print(json.dumps([[[sample.input, sample.target] for sample in task.dataset] for (task,) in found]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True, cwd=tmp_path)
    for name, samples in zip(names, json.loads(done.stdout), strict=True):
        assert len(samples) == 2
        question = chat.questions(name.split("_")[0], 16, 1, 1, 1 if "one" in name else 2)[0]
        assert samples[1] == [question.text, question.answer]


# What will not get better


@pytest.mark.parametrize(
    ("status", "says"), [(401, "refuses the key"), (404, "does not know the model"), (400, "refuses the request")]
)
def test_refusals_are_one_sentence(closed_door, tmp_path, status, says):
    closed_door.always = status
    with pytest.raises(ValueError, match=says) as caught:
        list(RemoteChat("openai/smollm2", closed_door.url, concurrency=2).answers(["a", "b", "c", "d", "e", "f"], 4))
    assert len(closed_door.received) == 2, "nothing more is sent"
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_stays_broken_ends_the_run_and_answers_are_kept(door, tmp_path):
    door.faults = [None] + [500] * 40
    with pytest.raises(ValueError, match=r"fails again and again .*; answers so far are kept, run") as said:
        here(door.url, tmp_path / "out", yes=True, concurrency=1, retries=0)
    assert len(journal_lines(tmp_path / "out")) == 1
    assert_no_key(tmp_path, str(said.value))


def test_no_key_no_server_no_such_provider(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for model, url, says in (
        ("openai/gpt-4o", None, "OPENAI_API_KEY"),
        ("nowhere/model", None, "not recognized"),
        ("openai/gpt-4o", "http://127.0.0.1:9/v1", "no server answers at http://127.0.0.1:9/v1"),
        ("openai/gpt-4o", "somewhere", "--base-url must be an address"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            RemoteChat(model, url)
        assert "\n" not in str(caught.value)
    for options, says in (({"concurrency": 0}, "concurrency must be"), ({"reasoning": "much"}, "reasoning must be one of")):
        with pytest.raises(ValueError, match=says):
            RemoteChat("openai/gpt-4o", **options)
    done = run("llm", "--model", "openai/gpt-4o", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "gpt"}, "--model must be PROVIDER/NAME"),
        ({"model": "local/nowhere/at/all"}, "neither a folder"),
        ({"model": "local/x/y", "base_url": "http://127.0.0.1:1"}, "--base-url is for servers"),
        ({"tasks": "number,word"}, "task must be one of"),
        ({"lengths": "16,12"}, "lengths must grow"),
        ({"lengths": "many"}, "--lengths must be whole numbers"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"seed": 0}, "seed must be at least 1"),
        ({"price_in": 1.0}, "belong together"),
        ({"beside": [Path("somewhere")]}, "give this one's --profile"),
    ],
)
def test_bad_input(options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        cli.llm(**({"model": "local/a/b", "out": tmp_path / "out"} | options))
    assert not (tmp_path / "out").exists()


def test_keys_and_passwords_are_not_shown(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    assert redacted(f"key {KEY} is wrong") == "key [redacted] is wrong"
    assert shown_url("https://me:secret@host:8000/v1?key=abc") == "https://host:8000/v1"


# Local models


@pytest.mark.parametrize("name", ["stories15M", "smollm2-135m"])
def test_questions_together_are_answered_as_alone(name):
    """With what they share read once, and many at once, against the model's own `generate` on each."""
    loaded = load_model(str(real.folder(name)))
    local = LocalChat(loaded)
    asked = [q.text for task in task_names() for q in chat.questions(task, 12, 1, 3)]
    together = {said.question: said for said in local.answers(asked[:3], 4)}
    together |= {said.question + 3: said for said in local.answers(asked[3:], 4)}
    import torch  # noqa: PLC0415

    for number, text in enumerate(asked):
        ids = torch.tensor([local.ids(text)])
        new = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=4, pad_token_id=0)
        alone = loaded.tokenizer.decode(new[0, ids.shape[1] :], skip_special_tokens=True)
        if not local.template:
            alone = alone.partition("\n")[0]
        assert together[number].text == alone
        assert together[number].tokens_in == ids.shape[1]
    assert local.template == (name == "smollm2-135m")


def test_the_command_on_a_local_model(tmp_path):
    model, profile = f"local/{real.folder('stories15M')}", ROOT / "results" / "profile-stories15M"
    out = tmp_path / "out"
    options = {"lengths": "12,16,64,100,300", "runs": 2, "samples": 2, "max_tokens": 4, "anyway": True, "profile": profile}
    cli.llm(model, out=out, **options)
    summary = check_summary(out, "llm")
    results = summary["results"]
    assert results["too_long"] == {"number": [300], "letter": [100, 300]}, "its context has 256 tokens"
    assert list(results["accuracy"]["letter"]) == ["12", "16", "64"]
    assert (
        results["profile"]["symbolic_late"]
        == json.loads((profile / "summary.json").read_text())["results"]["depth"]["symbolic"]["second"]
    )
    assert set(summary["sha256"]) == {"config.json", "answers.jsonl", "accuracy.html", "accuracy.png"}
    assert "<script src=" not in (out / "accuracy.html").read_text()
    assert str(real.WEIGHTS / "stories15M") not in (out / "summary.json").read_text()

    # A second model beside it: here the same one.
    cli.llm(model, out=out, beside=[out], **options)
    beside = check_summary(out, "llm")["results"]["beside"]
    assert [one["model"] for one in beside] == ["stories15M", "stories15M"]
    assert (out / "beside.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="of other weights"):
        cli.llm(model, out=out, **(options | {"profile": ROOT / "results" / "profile-smollm2-135m"}))
    with pytest.raises(ValueError, match="holds no profile"):
        cli.llm(model, out=out, **(options | {"profile": tmp_path}))
    with pytest.raises(ValueError, match="holds no run of"):
        cli.llm(model, out=out, beside=[tmp_path], **options)
    with pytest.raises(ValueError, match="another model or other settings"):
        cli.llm(model, out=out, **(options | {"samples": 3}))


@pytest.mark.parametrize("folder", sorted((ROOT / "results").glob("llm-*")), ids=lambda path: path.name)
def test_recorded_numbers_follow_from_the_recorded_answers(folder):
    summary = json.loads((folder / "summary.json").read_text())
    config, said = summary["config"], {row["key"]: row["text"].strip() for row in journal_lines(folder)}
    assert config["runs"] == 5
    counted = 0
    for task, cells in summary["results"]["accuracy"].items():
        for length, cell in cells.items():
            runs = []
            for number in range(1, 6):
                asked = chat.questions(task, int(length), number, config["samples"])
                runs.append(mean(said[q.key] == solved(task, q.text) for q in asked))
                counted += len(asked)
            assert cell["runs"] == pytest.approx(runs)
            assert cell["mean"] == pytest.approx(mean(runs))
            assert cell["std"] == pytest.approx(stdev(runs))
    assert counted == len(said) == summary["results"]["usage"]["answers"]


# Figures


def test_the_figure_shows_what_was_measured_beside_paper_b(tmp_path):
    settings = Settings(lengths=(12, 16, 100), runs=2, samples=2)
    found = measured(settings, Oracle(lambda number, _: number % 3 == 0), tmp_path)
    drawn = json.dumps(figures.accuracy_figure(found["accuracy"], "<b>oracle</b>", "about").to_dict())
    for task in task_names():
        for length, cell in found["accuracy"][task].items():
            assert f'"length": {length}, "model": "<b>oracle</b>", "mean": {cell["mean"]}' in drawn
    for model, tasks in experiment.PAPER.items():
        assert f'"length": 300, "model": "{model}", "mean": {tasks["letter"][-1]}' in drawn
