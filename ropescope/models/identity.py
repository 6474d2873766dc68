"""What identifies a model: hashes of all files that decide what it computes and how it reads text.

Weights alone do not: another `rope_theta` in config.json is another model, and another tokenizer or chat template makes other
inputs of the same text. So every file of a model that is read counts, by its content.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from ..runs import sha256

WEIGHTS = "*.safetensors"
READ = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "additional_chat_templates/*.jinja")
"""Files of a model beside its weights: settings, generation settings, adapter, tokenizer, chat templates."""
CODE = "*.py"
"""Code that comes with a model, which is read only if that is asked for."""
NOT_READ = ("source.json", "trainer_state.json")
"""Notes on where a model comes from: they do not change it."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Weights in these formats can run code when they are loaded, so they never are."""

ASIDE = ("transformers_version", "_name_or_path", "use_cache", "dtype", "torch_dtype")
"""Entries of `config.json` that do not change what a model computes in a given precision."""


def settings_of(model: Any) -> str | None:
    """The hash of the settings of a model in memory that change what it computes; None if it has none."""
    config = getattr(model, "config", None)
    entries = asdict(config) if is_dataclass(config) and not isinstance(config, type) else getattr(config, "to_dict", dict)()
    relevant = {str(key): value for key, value in entries.items() if key not in ASIDE}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True, default=str).encode()).hexdigest() if relevant else None


def model_files(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Hashes of a model's weights, and of all other files that are read with them, by name.

    path  folder of `transformers`, or GGUF file; tokenizer and template beside a GGUF file are read too
    """
    folder = path if path.is_dir() else path.parent
    weights = [path] if path.is_file() else _matching(folder, WEIGHTS)
    rest = [file for file in _matching(folder, *READ, CODE) if file.name not in NOT_READ]
    return {file.name: sha256(file) for file in weights}, {str(file.relative_to(folder)): sha256(file) for file in rest}


def _matching(folder: Path, *patterns: str) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def refuse_pickles(folder: Path) -> None:
    """Raise ValueError if a folder holds weights in pickles alone."""
    if not _matching(folder, WEIGHTS) and (pickled := _matching(folder, *PICKLES)):
        raise ValueError(
            f"its weights are pickled ({pickled[0].name}), which can run code: convert them to safetensors, "
            "as `save_pretrained` of transformers writes them"
        )
