"""The number and letter tasks as questions: they can be solved by their words alone, and answers are matched exactly."""

import re

import pytest
from chat_oracle import solved

from ropescope.tasks import chat, task_names


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
