"""How other processes load the same model: by its name, with a hash of its parameters."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from .adapter import named_tensors
from .load import load_model
from .stream import streams


@dataclass(frozen=True)
class Source:
    """All that another process needs to load the same model, and the hash that its parameters must have there."""

    name: str
    dtype: str
    trust_remote_code: bool
    parameters: str
    device: str = "auto"
    revision: str | None = None


def source_of(
    model: nn.Module, name: str, dtype: str, trust_remote_code: bool, device: str = "auto", revision: str | None = None
) -> Source:
    """The source of a loaded model; a folder or file by its absolute path."""
    path = Path(name)
    name = str(path.resolve()) if path.exists() else name
    return Source(name, dtype, trust_remote_code, parameter_hash(model), device, revision)


def open_source(source: Source) -> nn.Module:
    """The model, loaded in this process. Raises ValueError if it does not exist or has other weights."""
    try:
        model = load_model(
            source.name, source.dtype, source.trust_remote_code, device=source.device, revision=source.revision
        ).model
    except ValueError as error:
        raise ValueError(f"on {socket.gethostname()}: {error}") from None
    if parameter_hash(model) != source.parameters:
        raise ValueError(
            f"on {socket.gethostname()}: {source.name} holds other weights than where the run was started: copy them again"
        )
    return model


def parameter_hash(model: nn.Module) -> str:
    """The SHA-256 of all parameters and buffers, also of offloaded ones; of a streamed model, of its stored weights."""
    found = hashlib.sha256()
    stream = streams.get(model)
    for name, value in named_tensors(model) if stream is None else stream.stored.items():
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
