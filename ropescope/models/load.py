"""A model by its name: a folder, a GGUF file, or an id of the model hub. Weights are read as data, in single precision."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging as logging_of_python
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..console import first_line
from .headers import check_gguf, count_safetensors

PACKED, SLACK = 16, 1 << 28
"""Numbers that a model may have for each in its file, where several may be packed into one, and beside: tables of angles."""


@dataclass(frozen=True)
class Loaded:
    """A model, its tokenizer (None where it has none), its longest input, how many tokens it knows, what its weights are."""

    model: nn.Module
    tokenizer: Any
    context: int | None
    vocabulary: int
    about: dict[str, Any]


def load_model(source: str, dtype: str = "float32", trust_remote_code: bool = False) -> Loaded:
    """Open a causal language model; one sentence says what is wrong with a source that cannot be opened.

    source             folder of `transformers`, GGUF file, or hub id (only that reaches for the network)
    dtype              float32 or float64: half precision moves scores
    trust_remote_code  let a model bring its own code: only for those whose code you have read

    The result has `model`, `tokenizer` (None where there is none), `context` (most tokens of an input, or None) and `about`
    (family, sizes, hashes of the weights).

    Raises ValueError if there is no such model, it cannot be read, `transformers` is not installed, or dtype is another.

    >>> import ropescope as rs
    >>> from ropescope.models.bundled import bundled_folder
    >>> loaded = rs.load_model(str(bundled_folder("number")))  # or "weights/smollm2-135m", "model.gguf", "org/name"
    >>> loaded.about["family"], loaded.about["layers"], loaded.tokenizer is None
    ('gptj', 12, True)
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be float32 or float64, not {dtype!r}: half precision moves scores")
    try:
        import transformers  # noqa: PLC0415
    except ImportError:
        raise ValueError("real models need transformers: pip install 'ropescope[hf]'") from None
    path = Path(source)
    where: str = source
    options: dict[str, Any] = {}
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ValueError(f"{source} is not there: give the path of a GGUF file")
        where, options = str(path.parent or "."), {"gguf_file": path.name}
    elif path.exists():
        if not (path / "config.json").is_file():
            raise ValueError(f"{source} holds no config.json: give a folder of a transformers model, a GGUF file or a hub id")
        options["local_files_only"] = True
    elif source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise ValueError(f"{source} is neither a folder nor a GGUF file nor a hub id like org/name")
    if trust_remote_code:
        options["trust_remote_code"] = True
    with silent(transformers):
        try:
            if path.exists():
                _require_fitting(transformers, path, where, options)
            opened: Any = transformers.AutoModelForCausalLM.from_pretrained(
                where, dtype=getattr(torch, dtype), output_loading_info=True, **options
            )
            model, found = opened
            if lost := sorted(found["missing_keys"]):  # they would be filled with random numbers
                raise ValueError(f"{len(lost)} of its weights are not in the file, first {lost[0]}")
        except Exception as error:  # any of many libraries may fail on what is in a file
            raise ValueError(f"{source} cannot be opened as a causal language model: {first_line(error)}") from None
        tokenizer = _tokenizer(transformers, where, options)
    require_finite(model, source)
    config = model.config.get_text_config()
    context = getattr(config, "max_position_embeddings", None)
    vocabulary: int = model.get_input_embeddings().weight.shape[0]
    about = {
        "source": path.name if path.exists() else source,
        "family": model.config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "heads": getattr(config, "num_attention_heads", None),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": dtype,
        "weights": _hashes(path),
    }
    return Loaded(model.eval(), tokenizer, context, vocabulary, about)


def _tokenizer(transformers: Any, where: str, options: dict[str, Any]) -> Any:
    """None for models that were trained on token ids, and for what is made up for a folder without one: it knows no token."""
    try:
        found = transformers.AutoTokenizer.from_pretrained(where, **options)
        return found if found("a", add_special_tokens=False)["input_ids"] else None
    except Exception:  # any of many libraries may fail on what is in a file
        return None


def _require_fitting(transformers: Any, path: Path, where: str, options: dict[str, Any]) -> None:
    """Refuse a model whose settings ask for far more than its file of weights holds, before memory is filled with it."""
    if path.is_file():
        check_gguf(path)
        return  # settings are made from its header
    tensors, numbers = count_safetensors(path)
    if not tensors:
        return  # other kinds of files: that is for transformers to say
    config = transformers.AutoConfig.from_pretrained(where, **options)
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > tensors:
        raise ValueError(f"its settings ask for {layers} layers, but its weights are {tensors} tensors")
    if options.get("trust_remote_code"):
        return
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    asked = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if asked > PACKED * numbers + SLACK:
        raise ValueError(f"its settings ask for {asked:,} numbers, but its weights are {numbers:,}")


def require_finite(model: nn.Module, source: str | Path) -> None:
    """Refuse a model of which no number would be right."""
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise ValueError(f"{source} holds NaN or infinite weights, first in {name}: copy the model anew")


def _hashes(path: Path) -> dict[str, str]:
    """Of the files that hold the weights, where they are at hand."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors")) if path.is_dir() else []
    hashes = {}
    for file in files:
        with file.open("rb") as data:
            hashes[file.name] = hashlib.file_digest(data, "sha256").hexdigest()
    return hashes


@contextlib.contextmanager
def silent(transformers: Any) -> Iterator[None]:
    """No progress bars and warnings of loading: a bad model is refused in one sentence."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub = logging_of_python.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(logging_of_python.ERROR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # Bars of other libraries are for terminals.
        with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        hub.setLevel(hub_level)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
