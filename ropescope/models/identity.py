"""What identifies a model: hashes of all files that decide what it computes and how it reads text.

Weights alone do not: another `rope_theta` in config.json is another model, and another tokenizer or chat template makes other
inputs of the same text. So every file of a model that is read counts, by its content.
"""

from __future__ import annotations

from pathlib import Path

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
