"""A task is named once, and then can be trained on, asked in prompts and in chat, and taken apart into ideal hops."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import real

import ropescope as rs
from ropescope.tasks import TASKS, NumberTask, chat, task_class, task_names
from ropescope.tasks.functions import ideal_layers
from ropescope.tasks.multihop import Wording
from ropescope.training.recipe import recipe


@dataclass(frozen=True, kw_only=True)
class TwiceTask(NumberTask):
    """The number task, in other words."""

    name = "twice"
    wording = Wording(rule="Go back twice.", one_hop="Go back once.", answer="character")


@pytest.fixture
def twice(monkeypatch):
    monkeypatch.setitem(TASKS, TwiceTask.name, TwiceTask)


def test_names():
    assert task_names() == ("number", "letter")
    assert all(task.name == name for name, task in TASKS.items())
    assert {task.mechanism for task in TASKS.values()} == {"positional", "symbolic"}
    with pytest.raises(ValueError, match="task must be one of number, letter, not 'word'"):
        task_class("word")


@pytest.mark.parametrize("name", task_names())
def test_ideal_hops_find_the_answer(name):
    task = task_class(name)()
    samples = task.sample(40, seed=0)
    assert (ideal_layers(task, samples, task.hops)[-1].holds[:, -1] == samples.answer).all()


@pytest.mark.parametrize("name", task_names())
def test_features_say_where_tokens_point(name):
    """The key feature of the token pointed to follows from the query feature of the token that points."""
    task = task_class(name)()
    samples = task.sample(40, seed=1)
    for tokens, path, hops in zip(samples.tokens, samples.path, samples.hops, strict=True):
        names = task.decode(tokens)
        for here, there in pairwise(path[: hops + 1]):
            wanted = task.query_feature(names[here])
            if name == "number":
                assert int(wanted) == here - there
                assert task.key_feature(names[there]) == ("letter" if there < task.targets else "integer")
            else:
                assert task.key_feature(names[there]) == wanted


@pytest.mark.usefixtures("twice")
def test_a_new_task_is_known_everywhere():
    assert task_names()[-1] == "twice"
    made = recipe("twice", "quick").make_task()
    assert isinstance(made, TwiceTask)
    assert np.array_equal(made.sample(8, seed=0).tokens, NumberTask(hops=made.hops).sample(8, seed=0).tokens)
    text = chat.questions("twice", 12, 1, 1)[0].text
    assert text.startswith("Go back once.")
    assert "Output only the character, nothing else." in text


@pytest.mark.weights
@pytest.mark.usefixtures("twice")
def test_prompts_of_a_new_task():
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(real.folder("smollm2-135m"))
    prompt = rs.task_prompts(tokenizer, "twice", 1, chat=False)[0]
    assert "".join(prompt.tokens).startswith("Go back twice. Example:")
