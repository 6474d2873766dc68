"""Ordinary text: what moves in it, and where it comes from."""

import re

import pytest
from test_prompts import by_words, tokenizer_of

import ropescope as rs
from ropescope.tasks.choose import choose_prompts, describe
from ropescope.tasks.prompts import as_prompt
from ropescope.tasks.texts import SENTENCE_END, text_prompts

OPTIONS = {"count": 50, "pairs": 4, "lengths": "equal", "hops": 1, "blocks": None, "chat": None, "seed": 0}
TEXT = 'Go on. "Is it Mr. Bennet?" said she. He left. It was late\nNo answer came, and so she went to bed at once.'


def moving(prompt):
    return ["".join(prompt.tokens[start:stop]) for start, stop in prompt.blocks]


@pytest.mark.weights
def test_sentences_end_where_readers_say_so():
    assert SENTENCE_END.split(TEXT)[:3] == ["Go on.", '"Is it Mr. Bennet?" said she.', "He left."]
    (prompt,) = text_prompts(tokenizer_of("smollm2-135m"), TEXT, "sentence")
    assert [part.strip() for part in moving(prompt)] == [
        "on.",
        '"Is it Mr. Bennet?" said she.',
        "He left.",
        "It was late",
    ]


@pytest.mark.parametrize("blocks", ["; ", re.compile(r";\s*")])
def test_pieces_move_with_their_separator(blocks):
    (prompt,) = text_prompts(by_words(), "one two ; three ; four five ; six", blocks)
    assert [len(part.split()) for part in moving(prompt)] == [3, 2, 3]


def test_strings_and_examples_are_blocks():
    (named,) = text_prompts(by_words(), "one two three four five six", ["two three", "five"])
    assert [part.strip() for part in moving(named)] == ["two three", "five"]
    (shots,) = text_prompts(by_words(), [["one two ", "three four ", "five six"]])
    assert [part.strip() for part in moving(shots)] == ["one two", "three four"]
    assert shots.about["blocks"] == "example"


@pytest.mark.weights
def test_texts_are_cut_and_blocks_end_before_the_cut():
    tokenizer = tokenizer_of("smollm2-135m")
    whole, cut = (text_prompts(tokenizer, rs.prose(1), "sentence", longest=longest)[0] for longest in (None, 200))
    assert len(cut) == 200
    assert cut.blocks == tuple(block for block in whole.blocks if block[1] < 200)


@pytest.mark.weights
@pytest.mark.parametrize("move", [False, True])
def test_one_rule_for_the_first_token(move):
    """Ids, ids of a file, and text of a model without BOS: one text, one set of blocks."""
    tokenizer = tokenizer_of("smollm2-135m")
    ids = tokenizer(rs.prose(1)[0])["input_ids"][:40]
    (given,), (text,) = rs.id_prompts([ids], move_first=move), text_prompts(tokenizer, rs.prose(1), "token", move, 40)
    assert text.ids.tolist() == ids
    assert as_prompt(ids, move).blocks == given.blocks == text.blocks
    assert given.blocks[0] == ((0, 1) if move else (1, 2))


def test_prose_is_small_and_in_the_public_domain():
    texts = rs.prose()
    assert len(texts) == 8
    assert all(300 <= len(text.split()) <= 600 for text in texts)
    assert all(text.isascii() for text in texts)
    assert callable(rs.bundled)  # reading the folder of the same name must not hide the function
    with pytest.raises(ValueError, match="count must be from 1 to 8"):
        rs.prose(9)


@pytest.mark.weights
def test_prompts_from_prose_files_and_folders(tmp_path):
    tokenizer = tokenizer_of("smollm2-135m")
    prompts, about = choose_prompts(tokenizer, "prose", **OPTIONS | {"count": 3, "longest": 100})
    assert [len(prompt) for prompt in prompts] == [100] * 3
    assert describe(about) == "3 prompts from prose, moving each token"
    for name in ("b.txt", "a.txt", "notes.md"):
        (tmp_path / name).write_text(f"{name} one two\n\nthree four five six seven")
    found, about = choose_prompts(tokenizer, str(tmp_path), **OPTIONS)
    assert ["".join(prompt.tokens)[:5] for prompt in found] == ["a.txt", "b.txt"]
    assert about["blocks"] == "token"
    apart, about = choose_prompts(tokenizer, str(tmp_path / "a.txt"), **OPTIONS | {"blocks": "token"})
    assert len(apart) == 2
    assert "move_first" not in about
    moved, about = choose_prompts(tokenizer, str(tmp_path / "a.txt"), **OPTIONS | {"blocks": "token", "move_first": True})
    assert moved[0].blocks[0] == (0, 1)
    assert "the first token too" in describe(about)
    (tmp_path / "b.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"b\.txt is empty"):
        choose_prompts(tokenizer, str(tmp_path), **OPTIONS)
    with pytest.raises(ValueError, match="holds no text files"):
        choose_prompts(tokenizer, str(tmp_path / ".."), **OPTIONS)
