import functools
import re
from collections import Counter
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest
import real
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ropescope.tasks import LetterTask, NumberTask
from ropescope.tasks.prompts import binding_prompts, check_fits, task_prompts
from ropescope.tasks.texts import text_prompts
from ropescope.tasks.words import LIKED, NAMES

REAL = [pytest.param(name, marks=pytest.mark.weights) for name in (*real.FETCHED, *real.OTHERS)]
TOKENIZERS = pytest.mark.parametrize("name", REAL)
EITHER = st.sampled_from(["equal", "unequal"])
BOS = {"stories15M": 1, "tinyllama-1.1b": 1, "gemma3-270m": 1}
"""How many there must be; the other families have none."""


@functools.cache
def tokenizer_of(name):
    return by_words() if name == "words" else AutoTokenizer.from_pretrained(real.folder(name))


def by_words(joined=False, front="", behind="", bos="<bos>"):
    """A tokenizer for which every word and every sign is a token, or else the whole text."""
    words = ["?", "<bos>", "<s>", "<eos>", *NAMES, *LIKED, "Facts", "likes", "a", ".", ":"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="?"))
    if not joined:
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [(token, words.index(token)) for token in ("<bos>", "<s>", "<eos>")]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{front} $A {behind}".strip(), special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token="<eos>", unk_token="?")


def block_texts(tokenizer, prompt):
    """What each block says, told by the tokenizer and by the prompt."""
    decoded = [tokenizer.decode(prompt.ids[begin:end]).strip() for begin, end in prompt.blocks]
    shown = ["".join(prompt.tokens[begin:end]).strip() for begin, end in prompt.blocks]
    assert decoded == shown
    return shown


def check_bos(tokenizer, prompt, name):
    """Exactly one and in front, or none."""
    if name in BOS:
        assert (prompt.ids == tokenizer.bos_token_id).sum() == 1
        assert prompt.ids[0] == tokenizer.bos_token_id
        assert prompt.about["bos"] == tokenizer.bos_token
        assert prompt.blocks[0][0] > 0
    else:
        assert prompt.about["bos"] is None
        if not prompt.about["chat"]:  # where it may open every message
            assert tokenizer.bos_token_id not in prompt.ids


def check_answer(tokenizer, prompt, answer):
    """Text and answer, tokenized together, are the prompt's tokens and the answer's first."""
    front = 0 if prompt.about["bos"] is None else 1
    longer = tokenizer("".join(prompt.tokens[front:]) + f" {answer}", add_special_tokens=False)["input_ids"]
    assert longer[: len(prompt) + 1 - front] == [*prompt.ids[front:], prompt.answer]
    assert prompt.answer in prompt.choices


def check_binding(tokenizer, prompt, pairs):
    sentences = block_texts(tokenizer, prompt)
    people, liked = zip(
        *(re.fullmatch(r"(\w+(?: \w+)?) likes (\w+)\.", sentence).groups() for sentence in sentences), strict=True
    )
    about = prompt.about
    assert len(people) == len(set(people)) == pairs
    assert max(Counter(liked).values()) <= -(-pairs // min(64, pairs))
    assert (people[about["asked"]], liked[about["asked"]]) == (about["entity"], about["attribute"])
    assert all(end == begin for (_, end), (begin, _) in pairwise(prompt.blocks))  # no token between them
    assert prompt.blocks[-1][1] < len(prompt.ids) - 1
    text = "".join(prompt.tokens)
    assert text.endswith(f"{about['entity']} likes")
    assert text.count(f"{about['entity']} likes {about['attribute']}.") == 1
    check_answer(tokenizer, prompt, f"{about['attribute']}.")
    begin, end = prompt.blocks[about["asked"]]
    assert prompt.answer in prompt.ids[begin:end]
    assert len(prompt.choices) == len(set(prompt.choices)) == len(set(liked))


@TOKENIZERS
@pytest.mark.parametrize("lengths", ["equal", "unequal"])
@pytest.mark.parametrize("chat", [None, False])
def test_binding(name, lengths, chat):
    tokenizer = tokenizer_of(name)
    prompts = binding_prompts(tokenizer, 6, pairs=24, lengths=lengths, chat=chat)
    for prompt in prompts:
        check_binding(tokenizer, prompt, 24)
        check_bos(tokenizer, prompt, name)
        assert prompt.about["chat"] == (chat is None and tokenizer.chat_template is not None)
        sizes = {end - begin for begin, end in prompt.blocks}
        assert len(sizes) == (1 if lengths == "equal" else 2)
        assert prompt.ids.dtype == np.int64
        assert len(prompt.tokens) == len(prompt.ids) == len(prompt)


@pytest.mark.weights
def test_binding_in_a_chat_is_what_the_template_says():
    tokenizer = tokenizer_of("smollm2-135m")
    (prompt,) = binding_prompts(tokenizer, 1, pairs=3)
    text = "".join(prompt.tokens)
    assert text == tokenizer.decode(prompt.ids)
    said = re.search(r"<\|im_start\|>user\n(.*)<\|im_end\|>\n<\|im_start\|>assistant\n", text).group(1)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": said}], tokenize=False, add_generation_prompt=True)
    assert text == asked + f"{prompt.about['entity']} likes"


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 20), pairs=st.integers(2, 30), lengths=EITHER)
@pytest.mark.slow
def test_binding_is_balanced_and_seeded(seed, count, pairs, lengths):
    tokenizer = tokenizer_of("words")
    prompts, again = (binding_prompts(tokenizer, count, pairs, seed, lengths) for _ in range(2))
    asked = np.bincount([prompt.about["asked"] for prompt in prompts], minlength=pairs)
    assert asked.max() - asked.min() <= 1
    assert max(Counter(prompt.answer for prompt in prompts).values()) == 1  # there are more things than prompts
    for prompt, same in zip(prompts, again, strict=True):
        assert str(asdict(prompt)) == str(asdict(same))
        assert prompt.ids.tolist() == same.ids.tolist()


def test_cues():
    tokenizer = tokenizer_of("words")
    recall, question = (binding_prompts(tokenizer, 1, pairs=3, cue=cue)[0] for cue in ("recall", "question"))
    who = recall.about["entity"]
    assert "".join(recall.tokens).endswith(f". Recall the facts: {who} likes")
    assert "".join(question.tokens).endswith(f". Question: What does {who} like? Answer: {who} likes")
    assert recall.blocks == question.blocks


def test_other_seeds_give_other_prompts():
    tokenizer = tokenizer_of("words")
    texts = {tuple(prompt.ids) for seed in range(5) for prompt in binding_prompts(tokenizer, 4, seed=seed)}
    assert len(texts) == 20


@pytest.mark.weights
def test_256_pairs():
    tokenizer = tokenizer_of("smollm2-135m")
    (prompt,) = binding_prompts(tokenizer, 1, pairs=256)
    check_binding(tokenizer, prompt, 256)
    assert len(prompt.choices) == 256
    assert {end - begin for begin, end in prompt.blocks} == {4}


@pytest.mark.weights
def test_things_come_again_when_there_are_too_few():
    tokenizer = tokenizer_of("stories15M")
    (prompt,) = binding_prompts(tokenizer, 1, pairs=200)
    check_binding(tokenizer, prompt, 200)
    assert 100 < len(prompt.choices) < 200


@TOKENIZERS
@pytest.mark.parametrize("task", ["number", "letter"])
@pytest.mark.parametrize("hops", [1, 3])
def test_tasks(name, task, hops):
    tokenizer = tokenizer_of(name)
    rule = NumberTask(letters=26) if task == "number" else LetterTask()
    prompts = task_prompts(tokenizer, task, 5, hops=hops, seed=3)
    assert len(prompts) == 5
    for prompt in prompts:
        *items, query = prompt.about["sequence"].split()
        solution = rule.solve(rule.encode([*items, query]))
        assert solution.hops[0] == hops
        assert rule.decode(solution.answer) == [prompt.about["answer"]]
        assert block_texts(tokenizer, prompt) == items
        check_bos(tokenizer, prompt, name)
        check_answer(tokenizer, prompt, prompt.about["answer"])
        assert len(set(prompt.choices)) == len(prompt.choices) == len({item[0] for item in items[:8]})
    same = task_prompts(tokenizer, task, 5, hops=hops, seed=3)
    assert [prompt.ids.tolist() for prompt in prompts] == [prompt.ids.tolist() for prompt in same]


TEXT = "Alice went to the market.\n\n  Bob stayed, as always, at home.\n\tCafé 日本 😀!\nWho went out?"


@TOKENIZERS
def test_own_text_by_line(name):
    tokenizer = tokenizer_of(name)
    (prompt,) = text_prompts(tokenizer, TEXT, move_first=True)
    assert block_texts(tokenizer, prompt) == [line.strip() for line in TEXT.splitlines()[:-1] if line.strip()]
    assert "".join(prompt.tokens).endswith(TEXT)
    check_bos(tokenizer, prompt, name)
    assert prompt.answer is None
    assert prompt.choices == ()
    (stays,) = text_prompts(tokenizer, TEXT)
    assert stays.blocks == ((max(1, prompt.blocks[0][0]), prompt.blocks[0][1]), *prompt.blocks[1:])


@TOKENIZERS
def test_own_text_by_token(name):
    tokenizer = tokenizer_of(name)
    (prompt,) = text_prompts(tokenizer, TEXT, blocks="token")
    front = len(BOS.keys() & {name})
    assert prompt.blocks == tuple((i, i + 1) for i in range(1, len(prompt) - 1))
    (moves,) = text_prompts(tokenizer, TEXT, blocks="token", move_first=True)
    assert moves.blocks == tuple((i, i + 1) for i in range(front, len(prompt) - 1))
    assert prompt.ids[front:].tolist() == tokenizer(TEXT, add_special_tokens=False)["input_ids"]


@pytest.mark.weights
@given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1), min_size=3, max_size=6))
def test_lines_of_any_text_are_blocks(lines):
    tokenizer = tokenizer_of("smollm2-135m")
    (prompt,) = text_prompts(tokenizer, "\n".join(lines), move_first=True)
    assert [tokenizer.decode(prompt.ids[begin:end]) for begin, end in prompt.blocks] == [line + "\n" for line in lines[:-1]]


def test_several_texts():
    prompts = text_prompts(by_words(), ["one\ntwo\nthree", "four\nfive\nsix\nseven"])
    assert [len(prompt.blocks) for prompt in prompts] == [2, 3]


@pytest.mark.parametrize(
    ("tokenizer", "front"),
    [
        (by_words(), ["<bos>"]),  # as in GGUF files of Gemma: put in front though the tokenizer does not
        (by_words(front="<bos>"), ["<bos>"]),
        (by_words(front="<bos>", behind="<eos>"), ["<bos>"]),
        (by_words(front="<s> <bos>", behind="<eos>"), ["<s>", "<bos>"]),
        (by_words(bos="<s>"), []),  # families that never put it there, though it has a name
        (by_words(bos=None), []),
        (by_words(bos=None, behind="<eos>"), []),
    ],
)
def test_what_stands_in_front(tokenizer, front):
    prompts = [
        *binding_prompts(tokenizer, 1, pairs=3),
        *text_prompts(tokenizer, "zero one\ntwo\nthree"),
        *text_prompts(tokenizer, "zero one two three", "token"),
    ]
    for prompt in prompts:
        assert list(prompt.tokens[: len(front)]) == front
        assert not {"<bos>", "<s>", "<eos>"} & set(prompt.tokens[len(front) :])
        assert prompt.blocks[0][0] >= len(front)
        assert prompt.about["bos"] == ("<bos>" if front else None)


@pytest.mark.weights
def test_bos_in_the_text_is_not_doubled_nor_moved():
    tokenizer = tokenizer_of("stories15M")
    for blocks in ("line", "token"):
        (prompt,) = text_prompts(tokenizer, "<s>one\ntwo\nthree", blocks)
        assert prompt.ids.tolist().count(1) == 1
        assert prompt.blocks[0][0] == 1


def test_long_prompts_are_refused():
    prompts = binding_prompts(by_words(), 2, pairs=24)
    longest = max(map(len, prompts))
    check_fits(prompts, longest, None)
    with pytest.raises(ValueError, match=f"prompt 0 has {longest} tokens but the model reads at most {longest - 1}: use fewer"):
        check_fits(prompts, longest - 1, None)


class Slow:
    is_fast = False


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: binding_prompts(t, 0), "count must be at least 1, not 0"),
        (lambda t: binding_prompts(t, 1, pairs=1), "pairs must be at least 2, not 1"),
        (lambda t: binding_prompts(t, 1, pairs=600), "pairs is 600, but .* use at most 560 pairs"),
        (lambda t: binding_prompts(t, 1, pairs=400, lengths="unequal"), "use at most 373 pairs"),
        (lambda t: binding_prompts(t, 1, lengths="long"), "lengths must be 'equal' or 'unequal', not 'long'"),
        (lambda t: binding_prompts(t, 1, cue="hint"), "cue must be 'recall' or 'question', not 'hint'"),
        (lambda t: binding_prompts(t, 1, chat=True), "no chat template: use chat=False"),
        (lambda t: binding_prompts(by_words(joined=True), 1), "tokenizer joins ' Aaron' with the text around it"),
        (lambda t: binding_prompts(Slow(), 1), "tokenizer must be a fast tokenizer"),
        (lambda t: text_prompts(Slow(), "one\ntwo\nthree"), "tokenizer must be a fast tokenizer"),
        (lambda t: task_prompts(t, "word", 1), "task must be one of number, letter, not 'word'"),
        (lambda t: task_prompts(t, "number", 1, hops=10), "hops is 10 but stops only 8"),
        (lambda t: text_prompts(t, ["one\ntwo\nthree", " \n"]), "text 1 is empty"),
        (lambda t: text_prompts(t, "one\ntwo"), "text 0 has 1 line before the last.* at least 2"),
        (lambda t: text_prompts(t, "one two", "token"), "text 0 has 1 token before the last"),
        (lambda t: text_prompts(t, "one\ntwo\nthree", "word"), "a separator; 'word' is not in text 0"),
        (
            lambda t: text_prompts(t, "one\ntwo\nthree", ["two", "one"]),
            "'one' is not in text 0, or not after the one before it",
        ),
        (lambda t: text_prompts(t, ["one two three", 5], "token"), "text 1 must be a string, or a list of strings"),
        (lambda t: text_prompts(t, "one two three", "token", longest=3), "longest must be at least 4 tokens"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(by_words())


def test_a_template_that_changes_the_message_is_refused():
    tokenizer = by_words()
    tokenizer.chat_template = "{{ messages[0]['content'] | upper }}"
    with pytest.raises(ValueError, match="changes the message: use chat=False"):
        binding_prompts(tokenizer, 1)


def test_words():
    assert len(set(NAMES)) == len(NAMES) >= 300
    assert len(set(LIKED)) == len(LIKED) >= 256
    assert all(name.isalpha() and name.istitle() for name in NAMES)
    assert all(thing.isalpha() and thing.islower() for thing in LIKED)
