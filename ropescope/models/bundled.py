"""Trained models that are part of the package."""

from __future__ import annotations

import json
from pathlib import Path

from .gptj import GPTJ, load_gptj, require_vocabulary

FOLDER = Path(__file__).parents[1] / "bundled"


def bundled_folder(name: str) -> Path:
    """The folder of a bundled model, which `GPTJForCausalLM.from_pretrained` can load too."""
    names = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))
    if name not in names:
        raise ValueError(f"bundled model {name!r} does not exist: there are {', '.join(names)}")
    return FOLDER / name


def bundled_seed(name: str) -> int:
    """The seed of the training run of a bundled model, which is also that of its test sequences."""
    seed: int = json.loads((bundled_folder(name) / "source.json").read_text(encoding="utf-8"))["seed"]
    return seed


def bundled(name: str) -> GPTJ:
    """The model trained on the task "number" or "letter" with preset `paper`, stored in half precision and run in single.

    Raises ValueError if there is no model of this name.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import NumberTask
    >>> model, samples = rs.bundled("number"), NumberTask().sample(200, seed=0)
    >>> answers = model(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> float((answers == torch.from_numpy(samples.answer)).float().mean()) > 0.99
    True
    """
    return load_gptj(bundled_folder(name))


def model_of(task: str, vocab_size: int, folder: Path | None = None) -> tuple[GPTJ, Path]:
    """The model in the folder, or the bundled one of the task, and its folder. Raises ValueError if it is of another task."""
    source = folder or bundled_folder(task)
    model = load_gptj(source)
    require_vocabulary(model, task, vocab_size)
    return model, source
