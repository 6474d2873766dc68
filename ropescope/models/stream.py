"""Models larger than memory: weights stay on disk, and one layer at a time is in memory while a batch passes through it.

The model is built without numbers. Before a layer runs, a hook reads its weights; after it has run, another drops them. All
prompts of a batch pass through a layer together, so weights are read once per batch. Of an embedding only the rows of the
batch's tokens are read. Names and shapes are converted by `transformers` as it does when it loads a whole model.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..runs import read_header

PRECISIONS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Names of types in safetensors files."""
SLICE = 1 << 25
"""Bytes that are read at once of a matrix that is converted as it is read."""


class TooLittleMemoryError(ValueError):
    """Raised where memory cannot hold what is needed at once. One sentence says how much that is."""


class Stored:
    """The tensors of a folder's safetensors files, read when they are asked for. `bytes_read` counts what was read."""

    def __init__(self, folder: Path) -> None:
        self.bytes_read = 0
        self.entries: dict[str, tuple[Path, int, torch.dtype, tuple[int, ...]]] = {}
        for path in sorted(folder.glob("model*.safetensors")):
            header, begin = read_header(path)
            size = path.stat().st_size
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                if entry["dtype"] not in PRECISIONS:
                    raise ValueError(f"{name} is stored as {entry['dtype']}, which cannot be streamed: load it without memory")
                dtype, shape = PRECISIONS[entry["dtype"]], tuple(entry["shape"])
                first, end = entry["data_offsets"]
                if not 0 <= first <= end <= size - begin or torch.Size(shape).numel() * dtype.itemsize != end - first:
                    raise ValueError(f"{path.name} is damaged at {name}: copy the model again")
                self.entries[name] = path, begin + first, dtype, shape

    def bytes_of(self, name: str) -> int:
        """How many bytes a tensor takes in its file."""
        _, _, dtype, shape = self.entries[name]
        return torch.Size(shape).numel() * dtype.itemsize

    def tensor(self, name: str) -> Tensor:
        """A whole tensor."""
        path, begin, dtype, shape = self.entries[name]
        return self._read(path, begin, torch.Size(shape).numel(), dtype).reshape(shape)

    def converted(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A whole tensor in a precision and on a device. It is converted slice by slice, so as stored only a slice is held."""
        path, begin, stored, shape = self.entries[name]
        if (stored, device.type) == (dtype, "cpu"):
            return _checked(name, self.tensor(name))
        found, first = torch.empty(shape, dtype=dtype, device=device), begin
        for some in found.flatten().split(SLICE // stored.itemsize):
            some.copy_(_checked(name, self._read(path, first, len(some), stored)))
            first += some.numel() * stored.itemsize
        return found

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """All names and tensors, one at a time."""
        for name in self.entries:
            yield name, self.tensor(name)

    def rows(self, name: str, rows: Tensor) -> Tensor:
        """Some rows of a matrix."""
        path, begin, dtype, (_, width) = self.entries[name]
        step = width * dtype.itemsize
        return torch.stack([self._read(path, begin + step * row, width, dtype) for row in rows.tolist()])

    def _read(self, path: Path, begin: int, count: int, dtype: torch.dtype) -> Tensor:
        buffer = torch.empty(count * dtype.itemsize, dtype=torch.uint8)
        with path.open("rb", buffering=0) as file:
            file.seek(begin)
            view, done = memoryview(buffer.numpy().data), 0
            while done < len(view):
                if not (more := file.readinto(view[done:])):  # one call reads two gigabytes at most
                    raise ValueError(f"{path} ends too early: copy the model again")
                done += more
        self.bytes_read += done
        return buffer.view(dtype)


@dataclass
class Stream:
    """A model whose layers are read as they run.

    stored    its weights on disk; `stored.bytes_read` counts what was read
    memory    bytes that weights and the numbers of a batch may take
    resident  bytes that stay in memory
    layer     bytes of the largest layer while it is read
    head      bytes of the output matrix while it is read
    pieces    names of stored tensors, by the part of the model that needs them
    """

    model: Any
    stored: Stored
    memory: int
    device: torch.device
    resident: int = 0
    layer: int = 0
    head: int = 0
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def needed(self, prompts: int, longest: int, beside: int = 0) -> int:
        """Bytes of a batch of prompts, padded to the length of the longest, and of the weights that it passes through.

        beside  bytes that the caller needs for each layer's numbers
        """
        config, itemsize = self.model.config.get_text_config(), int(self.model.dtype.itemsize)
        sizes: dict[str, int] = {name: value for name, value in config.to_dict().items() if isinstance(value, int)}
        tokens, logits = prompts * longest, prompts * sizes.get("vocab_size", 0)
        in_layer = self.layer + tokens * token_bytes(sizes, itemsize, longest) + beside
        in_head = self.head + (3 * tokens * sizes.get("hidden_size", 1) + 2 * logits) * itemsize
        return self.resident + max(in_layer, in_head)

    def fitting(self, prompts: Sequence[tuple[int, int]]) -> int:
        """How many of the next prompts fit into memory together; ValueError if not even one does.

        prompts  of each its tokens, and the bytes that the caller needs for a layer's numbers
        """
        longest = list(accumulate((tokens for tokens, _ in prompts), max))
        beside = list(accumulate((size for _, size in prompts), max))
        needed = [self.needed(number, *sizes) for number, sizes in enumerate(zip(longest, beside, strict=True), start=1)]
        if needed[0] > self.memory:
            raise TooLittleMemoryError(f"memory must be at least {_gigabytes(needed[0])} for a prompt of {longest[0]:,} tokens")
        return sum(size <= self.memory for size in needed)


def _gigabytes(size: int) -> str:
    """The size as a limit of memory that is large enough."""
    return f"{math.ceil(size / 1e7) / 100:.2f} GB" if size > 1e8 else f"{math.ceil(size / 1e4) / 100:.2f} MB"


def token_bytes(sizes: Mapping[str, int], itemsize: int, longest: int) -> int:
    """Bytes that a token takes in a streamed layer, by the model's settings; numbers have `itemsize` bytes."""
    wide = max((value for name, value in sizes.items() if "intermediate" in name), default=4 * sizes.get("hidden_size", 1))
    heads = sizes.get("num_attention_heads", 1)
    width = heads * (sizes.get("head_dim") or sizes.get("hidden_size", 1) // heads)
    numbers = 8 * sizes.get("hidden_size", 1) + 3 * wide * max(1, sizes.get("num_experts_per_tok", 1)) + 6 * width
    return numbers * itemsize + 4 * heads * longest  # the last: weights of attention


streams: WeakKeyDictionary[nn.Module, Stream] = WeakKeyDictionary()
"""Models that are streamed."""


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """Within it, parameters of new modules have shapes only; buffers, which follow from settings, are computed."""
    register = nn.Module.register_parameter

    def empty(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = nn.Parameter(parameter.to("meta"), requires_grad=False)

    nn.Module.register_parameter = empty  # type: ignore[assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def open_streamed(folder: Path, config: Any, dtype: Any, device: torch.device, memory: int, trust: bool) -> Any:
    """A causal model of `transformers` whose layers are read from the folder's safetensors files as they run.

    Raises ValueError if a weight is not there, or memory cannot hold the largest part.
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    if getattr(config, "quantization_config", None) is not None:
        raise ValueError("quantised weights cannot be streamed: load it without memory")
    stored = Stored(folder)
    if not stored.entries:
        raise ValueError("it has no weights in safetensors files, which memory needs: load it once and save it as safetensors")
    if dtype == "auto":  # as `transformers` chooses it
        dtype = getattr(config, "dtype", None) or next(iter(stored.entries.values()))[2]
    with without_numbers():
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust)
    model.tie_weights()
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(device)
    stream = Stream(model, stored, memory, device)
    _assign_names(stream)
    _connect(stream)
    for part in filter(None, stream.pieces):
        if model.get_submodule(part) is model.get_output_embeddings():
            stream.head = _held(stream, part)
        else:
            stream.layer = max(stream.layer, _held(stream, part))
    if (least := stream.needed(1, 1)) > memory:
        raise TooLittleMemoryError(f"memory must be at least {_gigabytes(least)}, and more for prompts of many tokens")
    streams[model] = stream
    return model.eval()


def _held(stream: Stream, part: str) -> int:
    """Bytes that a part takes while it is read: as it is used and, if that differs, as stored."""
    module, used = stream.model.get_submodule(part), stream.model.dtype
    if isinstance(module, nn.Embedding):
        return 0  # rows of a batch
    total = 0
    for name in stream.pieces[part]:
        stored, size = stream.stored.entries[name][2], stream.stored.bytes_of(name)
        before = 0 if stored == used else size
        if module is stream.model.get_output_embeddings():
            before = min(before, SLICE)
        total += before + size * used.itemsize // stored.itemsize
    return total


def _assign_names(stream: Stream) -> None:
    """Find the part of the model that each stored tensor belongs to, by the names that `transformers` gives them."""
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key  # noqa: PLC0415

    model = stream.model
    own, mapping = model.state_dict(), _conversions(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    head = model.get_output_embeddings()
    missing = {name for name, value in model.named_parameters() if value.is_meta}
    for key in stream.stored.entries:
        name, converted = rename_source_key(key, renamings, converters, model.base_model_prefix, own)
        if name not in own and key in own:
            name, converted = key, None
        if name not in own:
            continue  # weights that this model does not have
        owner = name.rpartition(".")[0]
        module = model.get_submodule(owner)
        layer = next(
            (".".join(name.split(".")[: other.count(".") + 2]) for other in outer if name.startswith(f"{other}.")), None
        )
        direct = converted is None and (isinstance(module, nn.Embedding) or module is head)
        stream.pieces.setdefault(layer or (owner if direct else ""), []).append(key)
        missing -= {name}
        if converted is not None:  # one stored tensor may become several
            missing -= {other for other in missing if other.startswith(f"{layer}.")}
    parts = dict(model.named_modules())
    embedding = next((part for part in stream.pieces if isinstance(parts[part], nn.Embedding)), None)
    if isinstance(head, nn.Module) and embedding is not None and head.weight is parts[embedding].weight:
        stream.pieces[next(name for name, module in parts.items() if module is head)] = stream.pieces[embedding]
    if missing:
        raise ValueError(f"{len(missing)} of its weights are not in the files, first {min(missing)}")


def _conversions(model: Any) -> list[Any]:
    from transformers.conversion_mapping import get_model_conversion_mapping  # noqa: PLC0415

    return list(get_model_conversion_mapping(model) or [])


def _connect(stream: Stream) -> None:
    """Let every part read its weights before it runs and drop them afterwards; what belongs to no part is read now."""
    model = stream.model
    for part in list(stream.pieces):
        module = model.get_submodule(part)
        if part == "":
            _fill(stream, part)
            stream.resident = sum(value.nbytes for value in model.parameters() if not value.is_meta)
        elif isinstance(module, nn.Embedding):
            module.register_forward_pre_hook(partial(_fill_rows, stream, stream.pieces[part][0]))
            module.register_forward_hook(_drop, always_call=True)
        elif module is model.get_output_embeddings():
            module.register_forward_pre_hook(partial(_fill_head, stream, stream.pieces[part]))
            module.register_forward_hook(_drop, always_call=True)
        else:
            module.register_forward_pre_hook(lambda _module, _args, part=part: _fill(stream, part))
            module.register_forward_hook(_drop, always_call=True)


def _checked(name: str, value: Tensor) -> Tensor:
    if value.numel() and not all(bound.isfinite() for bound in value.aminmax()):  # in place: `isfinite` makes copies
        raise ValueError(f"it holds NaN or infinite weights, first in {name}: copy the model again")
    return value


def _fill(stream: Stream, part: str) -> None:
    """Read the weights of a layer, converted as `transformers` converts them."""
    from transformers.core_model_loading import convert_and_load_state_dict_in_model  # noqa: PLC0415
    from transformers.modeling_utils import LoadStateDictConfig  # noqa: PLC0415

    from .load import quiet_loading  # noqa: PLC0415

    model = stream.model
    found = {name: _checked(name, stream.stored.tensor(name)) for name in stream.pieces[part]}
    plan = model._get_dtype_plan(model.dtype)
    config = LoadStateDictConfig(
        dtype=model.dtype, dtype_plan=plan, device_map={"": stream.device}, weight_mapping=_conversions(model)
    )
    with quiet_loading():
        told, _ = convert_and_load_state_dict_in_model(model, found, config)
    module = model.get_submodule(part)
    empty = [name for name, value in module.named_parameters() if part and value.is_meta]
    if empty or told.mismatched_keys or told.conversion_errors:
        raise ValueError(f"its weights do not have the shapes of its settings, first in {part}: copy the model again")


def _fill_rows(stream: Stream, name: str, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Read the rows of the batch's tokens; tokens are numbered by them while the embedding runs."""
    used, places = args[0].unique(return_inverse=True)
    rows = _checked(name, stream.stored.rows(name, used)).to(stream.device, stream.model.dtype)
    _put(module, "weight", rows)
    vars(module).update(streamed_padding=module.padding_idx, padding_idx=None)  # it is for gradients only
    return (places, *args[1:])


def _fill_head(stream: Stream, names: list[str], module: nn.Module, _args: tuple[Tensor, ...]) -> None:
    for name in names:
        own = name.rpartition(".")[2]
        _put(module, own, stream.stored.converted(name, stream.model.dtype, stream.device))


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    vars(module).setdefault("streamed", {})[name] = module._parameters[name]
    module._parameters[name] = nn.Parameter(value, requires_grad=False)


@cache
def _trim() -> Callable[[int], int]:
    """The C library's function that gives freed memory back to the system; without one, a function that does nothing."""
    try:
        return cast("Callable[[int], int]", ctypes.CDLL(None).malloc_trim)
    except (OSError, TypeError, AttributeError):  # only glibc has it
        return lambda _: 0


def _drop(module: nn.Module, _args: Any, _output: Any) -> None:
    """Weights of a part are shapes only again, and memory that was freed while it ran is given back to the system."""
    if "streamed_padding" in vars(module):
        module.padding_idx = vars(module).pop("streamed_padding")
    kept = vars(module).pop("streamed", None)
    if kept is not None:  # as they were, since a tied weight is one and the same
        module._parameters.update(kept)
    else:
        for inner in module.modules():
            for name, value in inner._parameters.items():
                if value is not None and not value.is_meta:
                    inner._parameters[name] = nn.Parameter(value.detach().to("meta"), requires_grad=False)
    _trim()(0)
