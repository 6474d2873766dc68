"""Loading a model by its name: a folder, a GGUF file, or an id of the model hub. Weights are loaded in single precision."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..console import first_line
from .headers import check_gguf, count_safetensors
from .identity import CODE, READ, WEIGHTS, model_files, refuse_pickles

PACKED, SLACK = 16, 1 << 28
"""A model may have this many numbers for each one in its file, where several can be packed into one, and this many beside."""


@dataclass(frozen=True)
class Loaded:
    """A model, its tokenizer (None if it has none), its longest input, the size of its vocabulary, and what it is."""

    model: nn.Module
    tokenizer: Any
    context: int | None
    vocabulary: int
    about: dict[str, Any]


def load_model(source: str, dtype: str = "float32", trust_remote_code: bool = False) -> Loaded:
    """A causal language model with its tokenizer, from a folder, a GGUF file or the model hub.

    source             folder of `transformers`, GGUF file, or hub id (only that uses the network)
    dtype              float32 or float64: half precision changes scores
    trust_remote_code  run the code that comes with a model: only for models whose code you have read

    The result has `model`, `tokenizer` (None where there is none), `context` (most tokens of an input, or None) and `about`
    (family, sizes, hashes of all files that were read, and the commit of a hub id).

    Raises ValueError if there is no such model, it cannot be read, or dtype is another.

    >>> import ropescope as rs
    >>> from ropescope.models.bundled import bundled_folder
    >>> loaded = rs.load_model(str(bundled_folder("number")))  # or "weights/smollm2-135m", "model.gguf", "org/name"
    >>> loaded.about["family"], loaded.about["layers"], loaded.tokenizer is None
    ('gptj', 12, True)
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be float32 or float64, not {dtype!r}: half precision changes scores")
    path = Path(source)
    is_hub_id = not path.exists()
    with quiet_loading():
        where, options = _locate(source, trust_remote_code)
        options["trust_remote_code"] = trust_remote_code
        read = Path(where) / options.get("gguf_file", "")
        try:
            _require_fitting(read, where, options)
            model = _open(where, getattr(torch, dtype), options)
        except Exception as error:  # many libraries may fail in many ways on the contents of a file
            raise ValueError(f"{source} cannot be opened as a causal language model: {first_line(error)}") from None
        tokenizer = _tokenizer(where, options)
    require_finite(model, source)
    config = model.config.get_text_config()
    weights, files = model_files(read)
    about = {
        "source": source if is_hub_id else path.name,
        "family": model.config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "heads": getattr(config, "num_attention_heads", None),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": dtype,
        "weights": weights,
        "files": files,
        **({"revision": read.name} if is_hub_id else {}),
    }
    context = getattr(config, "max_position_embeddings", None)
    vocabulary: int = model.get_input_embeddings().weight.shape[0]
    return Loaded(model.eval(), tokenizer, context, vocabulary, about)


def _locate(source: str, code: bool) -> tuple[str, dict[str, Any]]:
    """The folder for `from_pretrained` and its options; files of a hub id are downloaded, code only if that is wanted."""
    path = Path(source)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ValueError(f"{source} does not exist: give the path of a GGUF file")
        return str(path.parent or "."), {"gguf_file": path.name}
    if path.exists():
        if not (path / "config.json").is_file():
            raise ValueError(f"{source} holds no config.json: give a folder of a transformers model, a GGUF file or a hub id")
        return source, {"local_files_only": True}
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise ValueError(f"{source} is neither a folder nor a GGUF file nor a hub id like org/name")
    return str(_download(source, code)), {"local_files_only": not code}  # code may lie in another repository


def _download(source: str, code: bool) -> Path:
    """The folder of a hub id in the cache, named after its commit. Pickles are never downloaded.

    So one commit is loaded, hashed and recorded: `from_pretrained` would ask for every file anew.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    wanted = [*READ, f"model{WEIGHTS}", f"adapter_model{WEIGHTS}", *([CODE] if code else [])]
    try:
        return Path(snapshot_download(source, allow_patterns=wanted))
    except Exception as error:  # the hub, the network or the disk may fail in many ways
        raise ValueError(f"{source} cannot be downloaded: {first_line(error)}") from None


def _open(where: str, dtype: torch.dtype, options: dict[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    if "gguf_file" not in options:
        options = {**options, "use_safetensors": True}  # or pickles would be loaded where there is nothing else
    loaded: Any = AutoModelForCausalLM.from_pretrained(where, dtype=dtype, output_loading_info=True, **options)
    model, found = loaded
    if missing := sorted(found["missing_keys"]):  # they would be filled with random numbers
        raise ValueError(f"{len(missing)} of its weights are not in the file, first {missing[0]}")
    run_experts_in_double(model)
    return model


def run_experts_in_double(model: nn.Module) -> None:
    """Let mixtures of experts run in double precision, which the fast way of `transformers` to run them does not know."""
    for part in model.modules():
        able: Any = getattr(part, "_can_set_experts_implementation", None)
        if able is not None and able() and any(weights.dtype == torch.float64 for weights in part.parameters()):
            part.set_experts_implementation("eager")  # type: ignore[operator]


def _tokenizer(where: str, options: dict[str, Any]) -> Any:
    """The tokenizer; None for models trained on token ids, and for the empty one that a folder without tokenizer gets."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        found: Any = AutoTokenizer.from_pretrained(where, **options)
        return found if found("a", add_special_tokens=False)["input_ids"] else None
    except Exception:  # many libraries may fail in many ways on the contents of a file
        return None


def _require_fitting(path: Path, where: str, options: dict[str, Any]) -> None:
    """Refuse a model whose settings ask for far more memory than its file of weights can fill."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    if path.is_file():
        check_gguf(path)
        return  # its settings are made from its header
    refuse_pickles(path)
    tensors, numbers = count_safetensors(path)
    if not tensors:
        return  # `transformers` says that there are none
    config = AutoConfig.from_pretrained(where, **options)
    if str(getattr(config, "transformers_weights", None) or "").endswith(".bin"):
        raise ValueError(f"its settings ask for pickled weights ({config.transformers_weights}), which are never loaded")
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > tensors:
        raise ValueError(f"its settings ask for {layers} layers, but its weights are {tensors} tensors")
    if options["trust_remote_code"]:
        return
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    asked = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if asked > PACKED * numbers + SLACK:
        raise ValueError(f"its settings ask for {asked:,} numbers, but its weights are {numbers:,}")


def require_finite(model: nn.Module, source: str | Path) -> None:
    """Refuse a model with NaN or infinite weights."""
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise ValueError(f"{source} holds NaN or infinite weights, first in {name}: copy the model again")


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Within it, `transformers` and the hub show no progress bars and no warnings."""
    from transformers.utils import logging as theirs  # noqa: PLC0415

    verbosity, bars = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(logging.ERROR)
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        # Other libraries show progress bars too, which are for terminals.
        with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        hub.setLevel(hub_level)
        theirs.set_verbosity(verbosity)
        if bars:
            theirs.enable_progress_bar()
