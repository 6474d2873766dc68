"""Prompts by name or from files, with a description of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .prompts import Prompt, binding_prompts, id_prompts, prompts_hash, task_prompts
from .registry import task_names
from .texts import prose, text_prompts

LONGEST_FILE = 64 << 20
"""Largest size of a file of prompts, in bytes."""


def choose_prompts(
    tokenizer: Any,
    kind: str,
    *,
    count: int,
    pairs: int,
    lengths: str,
    hops: int,
    blocks: str | None,
    chat: bool | None,
    seed: int,
    move_first: bool = False,
    longest: int | None = None,
) -> tuple[list[Prompt], dict[str, Any]]:
    """Prompts by name ("binding", "prose" or a task) or from files, and a description of them that JSON can hold.

    Blank lines separate the prompts of a text file. Each text file of a folder is one prompt. A JSON file holds token ids, for
    models without a tokenizer. What moves is by default a line of a file, and a token of prose or of the files of a folder.
    """
    if kind.endswith(".json"):
        found = id_prompts(_json(Path(kind)), kind, move_first)
        single = all(stop - start == 1 for prompt in found for start, stop in prompt.blocks)
        return found, _of_file(kind, found, "token" if single else "block", move_first)
    if tokenizer is None:
        raise ValueError("the model comes without a tokenizer: give prompts as token ids, in a JSON file")
    if kind == "binding":
        prompts = binding_prompts(tokenizer, count, pairs, seed, lengths, chat)
        about: dict[str, Any] = {"pairs": pairs, "lengths": lengths}
    elif kind in task_names():
        prompts = task_prompts(tokenizer, kind, count, hops, seed, chat=chat)
        about = {"hops": hops}
    else:
        texts = prose()[:count] if kind == "prose" else _texts(Path(kind), count)
        whole = kind == "prose" or Path(kind).is_dir()
        found = text_prompts(tokenizer, texts, blocks or ("token" if whole else "line"), move_first, longest)
        return found, _of_file(kind, found, str(found[0].about["blocks"]), move_first)
    about = {"kind": kind, "count": len(prompts), **about, "chat": bool(prompts[0].about["chat"]), "seed": seed}
    return prompts, about | {"sha256": prompts_hash(prompts)}


def is_text(kind: str) -> bool:
    """Whether prompts of this name are texts as they are, of which every position may be scored."""
    return kind == "prose" or Path(kind).is_dir()


def _texts(path: Path, count: int) -> list[str]:
    """Texts of a file, separated by blank lines, or at most `count` text files of a folder."""
    if path.is_dir():
        names = sorted(entry for entry in path.iterdir() if entry.suffix == ".txt")[:count]
        if not names:
            raise ValueError(f"{path} holds no text files: give a folder of files that end in .txt")
        texts = [_text(name).strip("\n") for name in names]
    else:
        texts = [part.strip("\n") for part in re.split(r"\n\s*\n", _text(path)) if part.strip()]
        names = [path]
    if empty := [name for name, text in zip(names, texts, strict=False) if not text.strip()] or names[: not texts]:
        raise ValueError(f"{empty[0]} is empty: give some text")
    return texts


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE + 1)  # a device may never end
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        names = ", ".join(("binding", "prose", *task_names()))
        raise ValueError(
            f"prompts must be {names}, a text file, a folder of them or a JSON file; {path} cannot be read: {reason}"
        ) from None
    if len(data) > LONGEST_FILE:
        raise ValueError(f"{path} is longer than {LONGEST_FILE >> 20} MB: give fewer prompts at a time")
    return text


def _of_file(name: str, prompts: Sequence[Prompt], blocks: str, move_first: bool) -> dict[str, Any]:
    """Description of prompts from a file, with a hash because files change."""
    about = {"kind": Path(name).name, "count": len(prompts), "blocks": blocks, "sha256": prompts_hash(prompts)}
    return about | ({"move_first": True} if move_first else {})


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error}): give a list of prompts, each a list of token ids") from None


def describe(about: dict[str, Any]) -> str:
    """The description of `choose_prompts` in one line of English."""
    count, kind = about["count"], about["kind"]
    prompts = "prompt" if count == 1 else "prompts"
    queries = f", {about['queries']} queries of each" if about.get("queries") else ""
    if kind == "binding":
        what = f"{count} binding {prompts} of {about['pairs']} sentences, {about['lengths']} in length"
    elif kind in task_names():
        what = f"{count} {prompts} of the {kind} task, hops: {about['hops']}"
    else:
        first = ", the first token too" if about.get("move_first") else ""
        return f"{count} {prompts} from {kind}, moving each {about['blocks']}{first}{queries}"
    return f"{what}, {'chat template' if about['chat'] else 'plain text'}, seed {about['seed']}{queries}"
