"""Loading a model by its name: a folder, a GGUF file, or an id of the model hub."""

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

from ..console import first_line, name_of
from .headers import check_gguf, count_safetensors
from .identity import CODE, READ, WEIGHTS, model_files, refuse_pickles
from .place import check_precision, choose_device, parse_memory
from .stream import TooLittleMemoryError, open_streamed

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


def load_model(
    source: str,
    dtype: str = "auto",
    trust_remote_code: bool = False,
    *,
    device: str = "auto",
    revision: str | None = None,
    memory: str | int | None = None,
) -> Loaded:
    """A causal language model with its tokenizer, from a folder, a GGUF file or the model hub.

    source             folder of `transformers`, GGUF file, or hub id (only that uses the network)
    dtype              auto (as stored; GGUF files in float32), float32, float64, bfloat16 or float16
    trust_remote_code  run the code that comes with a model: only for models whose code you have read
    device             auto (a CUDA device if there is one, else the CPU), cpu, cuda, cuda:1, mps, ...
    revision           branch, tag or commit of a hub id
    memory             for models larger than memory: bytes, or a text such as 8GB. Weights then stay on disk, and one layer at
                       a time is in memory while a batch passes through it

    The result has `model`, `tokenizer` (None where there is none), `context` (most tokens of an input, or None) and `about`
    (family, sizes, hashes of all files that were read, and the commit of a hub id).

    Raises ValueError if there is no such model, it cannot be read, a setting is not allowed, or memory does not hold the
    largest layer.

    >>> import ropescope as rs
    >>> from ropescope.models.bundled import bundled_folder
    >>> loaded = rs.load_model(str(bundled_folder("number")))  # or "weights/smollm2-135m", "model.gguf", "org/name"
    >>> loaded.about["family"], loaded.about["layers"], loaded.tokenizer is None
    ('gptj', 12, True)
    """
    check_precision(dtype)
    chosen, limit = choose_device(device), parse_memory(memory)
    path = Path(source)
    is_hub_id = not path.exists()
    if revision is not None and not is_hub_id:
        raise ValueError(f"revision is for hub ids, and {source} is a file or folder: leave it out")
    with quiet_loading():
        where, options = _locate(source, trust_remote_code, revision)
        options["trust_remote_code"] = trust_remote_code
        read = Path(where) / options.get("gguf_file", "")
        if limit is not None and read.is_file():
            raise ValueError(f"memory needs safetensors, and {source} is a GGUF file: load it once and save it as safetensors")
        try:
            _require_fitting(read, where, options)
            model = _open(where, dtype, options, chosen, limit)
            run_experts_in_double(model)
        except TooLittleMemoryError:
            raise
        except Exception as error:  # many libraries may fail in many ways on the contents of a file
            raise ValueError(f"{source} cannot be opened as a causal language model: {first_line(error)}") from None
        tokenizer = _tokenizer(where, options)
    if limit is None:  # streamed weights are checked as they are read
        require_finite(model, source)
    about = {"source": source if is_hub_id else name_of(path), **_about(model, read)}
    about |= {"revision": read.name} if is_hub_id else {}
    about |= {"device": str(chosen)} if chosen.type != "cpu" else {}
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    vocabulary: int = model.get_input_embeddings().weight.shape[0]
    return Loaded(model.eval(), tokenizer, context, vocabulary, about)


def _about(model: Any, read: Path) -> dict[str, Any]:
    """Family, sizes, precision, and hashes of all files that were read."""
    config = model.config.get_text_config()
    weights, files = model_files(read)
    return {
        "family": model.config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "heads": getattr(config, "num_attention_heads", None),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "weights": weights,
        "files": files,
    }


def _locate(source: str, code: bool, revision: str | None = None) -> tuple[str, dict[str, Any]]:
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
    return str(_download(source, code, revision)), {"local_files_only": not code}  # code may lie in another repository


def _download(source: str, code: bool, revision: str | None) -> Path:
    """The folder of a hub id in the cache, named after its commit. Pickles are never downloaded.

    So one commit is loaded, hashed and recorded: `from_pretrained` would ask for every file anew.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    wanted = [*READ, f"model{WEIGHTS}", f"adapter_model{WEIGHTS}", *([CODE] if code else [])]
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=wanted))
    except Exception as error:  # the hub, the network or the disk may fail in many ways
        raise ValueError(f"{source} cannot be downloaded: {first_line(error)}") from None


def _open(where: str, dtype: str, options: dict[str, Any], device: torch.device, memory: int | None) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    asked: Any = "auto" if dtype == "auto" and "gguf_file" not in options else getattr(torch, dtype, torch.float32)
    if memory is not None:
        config = AutoConfig.from_pretrained(where, **options)
        return open_streamed(Path(where), config, asked, device, memory, options["trust_remote_code"])
    if "gguf_file" not in options:
        options = {**options, "use_safetensors": True}  # or pickles would be loaded where there is nothing else
    loaded: Any = AutoModelForCausalLM.from_pretrained(where, dtype=asked, output_loading_info=True, **options)
    model, found = loaded
    if missing := sorted(found["missing_keys"]):  # they would be filled with random numbers
        raise ValueError(f"{len(missing)} of its weights are not in the file, first {missing[0]}")
    return model.to(device) if device.type != "cpu" else model


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
