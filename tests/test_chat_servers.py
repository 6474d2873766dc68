"""Chat models behind servers that fail as servers do: nothing stored is asked again, no key is kept, errors are one line."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import mean
from types import SimpleNamespace

import pytest
import real
from chat_server import Proxy, serving
from commands import run
from test_chat import SIZES, SMALL, all_questions
from test_cli import check_summary

import ropescope as rs
from ropescope.studies.chat.asking import answers_in
from ropescope.studies.chat.grid import Grid
from ropescope.studies.chat.servers import redacted
from ropescope.tasks import chat

pytestmark = pytest.mark.slow

KEY = "sk-loopback-9f8e7d6c5b4a"
QUESTIONS = {question.text: question for question in all_questions(SMALL)}


@pytest.fixture
def proxy(monkeypatch):
    """A server that answers right."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    opened = Proxy()
    yield opened
    opened.shutdown()
    opened.server_close()


def asked(url: str, out: Path, **more):
    """A run here, in this process."""
    given = {"model": "openai/made-up", "base_url": url, "yes": True, "progress": False, **SIZES, **more}
    return rs.run("llm", out=out, **given)


def kept(out: Path) -> set[str]:
    """Keys of questions that are answered in a log."""
    return set(answers_in(out / "logs", list(QUESTIONS.values()), lambda _: None))


def assert_no_key(folder: Path, *texts: str) -> None:
    """In no file and no text, and in nothing inside of an archive."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
        if path.suffix == ".eval":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    assert KEY.encode() not in archive.read(name), (path, name)
    assert not any(KEY in text for text in texts)


# A run that is killed


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A grid on a server that fails as servers do, its client killed in the middle of it, and run again to the end."""
    out, proxy = tmp_path_factory.mktemp("grid") / "out", Proxy()
    proxy.faults = [None, 429, 500, None, "drop", 503, None]
    start = "import sys; from ropescope.cli import main; sys.argv = ['ropescope', *sys.argv[1:]]; main()"
    options = [text for name, value in SIZES.items() for text in (f"--{name.replace('_', '-')}", shown(value))]
    arguments = ["llm", "--model", "openai/made-up", "--base-url", proxy.url, "--out", str(out), *options]
    arguments += ["--yes", "--concurrency", "2", "--timeout", "5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        client = subprocess.Popen([sys.executable, "-c", start, *arguments], stderr=subprocess.PIPE, text=True)
        stored: set[str] = set()
        while len(stored) < 5 and client.poll() is None:
            with suppress(FileNotFoundError):  # a log that is just written anew
                stored = kept(out)
            proxy.slow = 0.2 if stored else 0.0  # so that there is a middle
            time.sleep(0.02)
        client.send_signal(signal.SIGKILL)
        said = client.communicate()[1]
        stored, before = kept(out), len(proxy.received)
        assert 5 <= len(stored) < 16, said
        proxy.faults, proxy.slow = ["hang"], 0.0
        done = run(*arguments)
    yield SimpleNamespace(out=out, proxy=proxy, kept=stored, before=before, done=done)
    proxy.shutdown()
    proxy.server_close()


def shown(value) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.slow
def test_nothing_stored_is_asked_or_counted_twice(killed):
    assert killed.done.returncode == 0, killed.done.stderr
    assert killed.proxy.faults == []
    asked_again = {QUESTIONS[text].key for text in killed.proxy.received[killed.before :]}
    assert not asked_again & killed.kept, "what was answered before the kill is not asked again"
    assert kept(killed.out) == {question.key for question in QUESTIONS.values()}
    twice = len(killed.proxy.answered) - 16
    assert 0 <= twice <= 2 * 2, "paid twice is at most what was under way at the kill"
    assert f"16 questions, {len(killed.kept)} of them answered already" in killed.done.stderr
    assert len(killed.done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_numbers_are_those_of_the_answers_given(killed):
    results = check_summary(killed.out, "llm")["results"]
    given = dict(killed.proxy.answered)
    for task, cells in results["accuracy"].items():
        assert list(cells) == ["12", "16"]
        for length, cell in cells.items():
            of_cell = [q for q in QUESTIONS.values() if (q.task, q.length) == (task, int(length))]
            runs = [mean(given[q.text].strip() == q.answer for q in of_cell if q.run == run) for run in (1, 2)]
            assert cell["runs"] == runs == [1, 1]
            assert cell["samples"] == len(of_cell) == 4
            assert cell["characters"] == mean(len(given[q.text].strip()) for q in of_cell)
    assert results["usage"] == {"answers": 16, "tokens_in": 1600, "tokens_out": 32, "reasoning": None}
    rows = [json.loads(line) for line in (killed.out / "answers.jsonl").read_bytes().splitlines()]
    assert Counter(row["key"] for row in rows) == Counter(question.key for question in QUESTIONS.values())
    assert all(row["text"] == given[text] for row in rows for text, q in QUESTIONS.items() if q.key == row["key"])


@pytest.mark.slow
def test_a_whole_grid_asks_nothing_and_gives_the_same(killed, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    before, results = len(killed.proxy.received), check_summary(killed.out, "llm")["results"]
    again = asked(killed.proxy.url, killed.out, yes=False)
    assert len(killed.proxy.received) == before
    assert again.run.results == results
    assert str(again.table()[1]) in killed.done.stdout


@pytest.mark.slow
def test_no_key_is_kept_or_said(killed):
    assert killed.proxy.keys == {f"Bearer {KEY}"}
    assert_no_key(killed.out, killed.done.stderr, killed.done.stdout)


# What will not get better


@pytest.mark.parametrize(
    ("status", "says"), [(401, "refuses the key"), (404, "does not know the model"), (400, "refuses the request")]
)
def test_refusals_are_one_sentence(proxy, tmp_path, status, says):
    proxy.always = status
    with pytest.raises(ValueError, match=f"openai/made-up: the server {says}") as caught:
        asked(proxy.url, tmp_path, concurrency=2)
    assert len(proxy.received) == 2, "nothing more is sent"
    assert "\n" not in str(caught.value)
    assert "answers so far are kept, run the same command again to resume" in str(caught.value)
    assert_no_key(tmp_path, str(caught.value))


def test_a_server_that_stays_broken_ends_the_run_and_answers_are_kept(proxy, tmp_path):
    proxy.faults = [None] + [500] * 40
    with pytest.raises(ValueError, match=r"fails again and again .*; answers so far are kept, run") as caught:
        asked(proxy.url, tmp_path, concurrency=1, retries=0)
    assert len(kept(tmp_path)) == 1
    assert_no_key(tmp_path, str(caught.value))
    proxy.faults = []
    before = len(proxy.received)
    assert asked(proxy.url, tmp_path).run.results["usage"]["answers"] == 16
    assert len(proxy.received) - before == 15


def test_a_silent_server_is_named(proxy, tmp_path):
    proxy.faults = ["hang"] * 3
    with pytest.raises(ValueError, match=r"the server fails again and again \(no answer within 1 seconds\)"):
        asked(proxy.url, tmp_path, concurrency=1, retries=0, timeout=1)


def test_a_key_in_an_answer_is_not_kept(proxy, tmp_path):
    proxy.says = lambda question: f"my key is {KEY}"
    result = asked(proxy.url, tmp_path)
    assert not result.run.results["screening"]["passed"]
    assert "my key is [redacted]" in (tmp_path / "answers.jsonl").read_text()
    assert_no_key(tmp_path)


def test_no_key_no_server_no_such_provider(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for model, url, says in (
        ("openai/gpt-4o", None, "OPENAI_API_KEY"),
        ("nowhere/model", None, "not recognized"),
        ("openai/gpt-4o", "http://127.0.0.1:9/v1", "no server answers at http://127.0.0.1:9/v1"),
        ("openai/gpt-4o", "somewhere", "base_url must be an address"),
        ("openai/gpt-4o", "http://me:secret@127.0.0.1:9/v1", "base_url must hold no user, password or query"),
        ("openai/gpt-4o", "http://127.0.0.1:9/v1?key=secret", "base_url must hold no user, password or query"),
        ("openai/gpt-4o", "http://127.0.0.1:9/secret@127.0.0.1:9/v1", "base_url must hold no user, password or query"),
        ("openai/gpt-4o", "http://127.0.0.1:9/v1#secret", "base_url must hold no user, password or query"),
        ("openai/gpt-4o", "http://me:99999/secret@127.0.0.1:9/v1", "base_url must be an address"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            asked(url, tmp_path / "out", model=model)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
        assert not (tmp_path / "out").exists()


def test_keys_are_not_shown(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    assert redacted(f"key {KEY} is wrong") == "key [redacted] is wrong"
    assert redacted("no answer from http://me:se@cret@host:1/v1") == "no answer from http://[redacted]@host:1/v1"


# Inspect AI's own command, and a real server


def test_tasks_are_found_by_name(tmp_path):
    """As Inspect AI finds them: by the entry point of the installed package, where no folder has its name."""
    names = ("number_one_hop", "letter_one_hop", "number_multi_hop", "letter_multi_hop")
    code = (
        "import json, sys; from inspect_ai._eval.loader import load_tasks\n"
        "given = {'lengths': '12,16', 'runs': 1, 'samples': 1}\n"
        "found = [load_tasks([f'ropescope/{name}'], given) for name in sys.argv[1:]]\n"
        "print(json.dumps([[[sample.input, sample.target] for sample in task.dataset] for (task,) in found]))"
    )
    # pytest-xdist puts this folder on the path, where Inspect AI takes the package for one that is not installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, samples in zip(names, json.loads(done.stdout), strict=True):
        assert len(samples) == 2
        question = chat.questions(name.split("_")[0], 16, 1, 1, 1 if "one" in name else 2)[0]
        assert samples[1] == [question.text, question.answer]


def test_inspect_ai_evaluates_the_same_questions(proxy, tmp_path):
    from inspect_ai import eval as evaluate  # noqa: PLC0415
    from inspect_ai.model import get_model  # noqa: PLC0415

    from ropescope.studies.chat.inspect_tasks import letter_one_hop  # noqa: PLC0415

    texts = [question.text for question in Grid(("letter",), (12,), 2, 1).cell("letter", 12)]
    proxy.says = lambda question: "a1 a1" if question == texts[0] else chat_answer(question)
    model = get_model("openai-api/openai/made-up", base_url=proxy.url, memoize=False)
    (log,) = evaluate(letter_one_hop([12], runs=2, samples=1), model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    assert Counter(text for text, _ in proxy.answered) == Counter(texts)
    scores = {sample.input: score.value for sample in log.samples for score in sample.scores.values()}
    assert scores[texts[0]] == {"right": 0.0, "single": 0.0, "characters": 5}
    assert scores[texts[1]] == {"right": 1.0, "single": 1.0, "characters": 2}


def chat_answer(question: str) -> str:
    return next(q.answer for run in (1, 2) for q in chat.questions("letter", 12, run, 1) if q.text == question)


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_server_gives_the_answers_of_the_model_loaded_here(tmp_path, monkeypatch):
    """`transformers serve` with SmolLM2, behind a proxy that fails now and then."""
    from ropescope.studies.chat.local import Local  # noqa: PLC0415

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    folder = real.folder("smollm2-135m")
    with serving(folder, tmp_path / "log.txt") as address:
        proxy = Proxy(address, str(folder))
        proxy.faults = [429, None, "drop", 500]
        result = asked(proxy.url, tmp_path / "out", anyway=True, concurrency=2, tasks=["letter"], lengths=[12, 16])
        proxy.shutdown()
        proxy.server_close()
    assert proxy.faults == []
    local, given = Local(str(folder)), dict(proxy.answered)
    rows = [json.loads(line) for line in (tmp_path / "out" / "answers.jsonl").read_bytes().splitlines()]
    assert len(rows) == len(given) == 8
    for row in rows:
        question = next(q for q in QUESTIONS.values() if q.key == row["key"])
        text, tokens_in, _ = local.answer(question.text, 4)
        assert row["text"].strip() == given[question.text].strip() == text.strip()
        assert row["tokens_in"] == tokens_in
    assert not result.run.results["screening"]["passed"]
    assert_no_key(tmp_path / "out")
