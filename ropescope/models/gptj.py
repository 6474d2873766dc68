"""A small GPT-J: attention and MLP in parallel after one layer norm, rotary positions, untied output embedding.

Folders are those of `transformers`: `GPTJForCausalLM.from_pretrained` loads what `save_gptj` writes, and the reverse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from ..console import first_line
from ..heads import Heads
from ..rope import Rope
from ..runs import write_whole
from .linear import Linear
from .load import require_finite

ACTIVATIONS = {"gelu_new": "tanh", "gelu": "none"}
"""Activations by their names in `transformers`, and which approximation of GELU each is to torch."""

OnHeads = Callable[[int, Heads], None]
"""Called by a forward pass with each layer's number and its heads."""


def require_activation(name: object) -> None:
    """Raise ValueError unless it is the name of an activation that GPT-J can have here."""
    if name not in tuple(ACTIVATIONS):  # a tuple, as what comes from JSON may not be hashable
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {name!r}")


@dataclass(frozen=True)
class GPTJConfig:
    """Sizes of a model; the defaults are those of the number and letter tasks.

    vocab_size  number of tokens
    layers      number of layers
    heads       number of heads in each layer; width / heads dimensions each
    width       of the residual stream
    mlp_width   of the hidden layer of the MLP
    rope        one rotation for all layers or one per layer: choose planes, or give the last layers none (NoPE)
    dropout     while training
    log_length  logits of a query that sees n keys, more than `log_length`, are multiplied by log n / log `log_length`: so
                a difference that is enough among few keys stays enough among many
    activation  of the MLP, by its name in `transformers`: "gelu_new" (GELU in its tanh approximation) or "gelu" (exact)

    Raises ValueError if sizes or rotations do not fit each other, or the activation is not one of the two.

    >>> import ropescope as rs
    >>> config = rs.GPTJConfig(vocab_size=136, layers=2, heads=4, width=64)
    >>> config.head_dim, len(config.ropes), config.ropes[0].pairing
    (16, 2, 'interleaved')
    """

    vocab_size: int
    layers: int = 12
    heads: int = 1
    width: int = 128
    mlp_width: int = 512
    rope: Rope | tuple[Rope, ...] | None = None
    dropout: float = 0.1
    log_length: int | None = None
    activation: str = "gelu_new"

    def __post_init__(self) -> None:
        require_activation(self.activation)
        if self.log_length is not None and self.log_length < 2:
            raise ValueError(f"log_length must be at least 2, not {self.log_length}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        object.__setattr__(self, "rope", self.ropes)  # so that equal models have equal settings
        for rope in self.ropes:
            if rope.head_dim != self.head_dim:
                raise ValueError(f"rope has head_dim {rope.head_dim}, but width / heads is {self.head_dim}")
        if len(self.ropes) != self.layers:
            raise ValueError(f"rope must be one for all layers or one for each of {self.layers}, not {len(self.ropes)}")

    @property
    def head_dim(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The rotation of each layer."""
        if isinstance(self.rope, tuple):
            return self.rope
        return (self.rope or Rope(self.head_dim, pairing="interleaved"),) * self.layers


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: GPTJConfig, rope: Rope) -> None:
        super().__init__()
        self.rope, self.heads, self.dropout, self.log_length = rope, config.heads, config.dropout, config.log_length
        self.norm = nn.LayerNorm(config.width)
        self.query, self.key, self.value, self.out = (Linear(config.width, config.width, bias=False) for _ in range(4))
        self.expand, self.contract = Linear(config.width, config.mlp_width), Linear(config.mlp_width, config.width)
        self.approximate = ACTIVATIONS[config.activation]

    def forward(
        self,
        x: Float[Tensor, "B T width"],
        number: int = 0,
        on_heads: OnHeads | None = None,
        last_only: bool = False,
        positions: Int[Tensor, " T"] | None = None,
    ) -> Float[Tensor, "B t width"]:
        """The residual stream after this layer at every position, or with `last_only` at the last one alone."""
        normed = self.norm(x)
        places = torch.arange(x.shape[1], device=x.device)
        queries, keys, values = self.project(normed, places, last_only)
        positions = places if positions is None else positions
        if on_heads is not None:
            on_heads(number, Heads(queries, keys, self.rope, scale=1 / math.sqrt(self.rope.head_dim)))
        if last_only:
            x, normed = x[:, -1:], normed[:, -1:]
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(
            self.rope.rotate(queries, positions[-queries.shape[2] :]),
            self.rope.rotate(keys, positions),
            values,
            dropout_p=dropout,
            is_causal=not last_only,  # the last position sees all
        )
        attention = self.out(attended.transpose(1, 2).flatten(-2))
        return x + F.dropout(attention, dropout) + F.dropout(self.mlp(normed), dropout)

    def mlp(self, normed: Float[Tensor, "B T width"]) -> Float[Tensor, "B T width"]:
        """Output of the MLP, without dropout."""
        output: Tensor = self.contract(F.gelu(self.expand(normed), approximate=self.approximate))
        return output

    def project(
        self, normed: Float[Tensor, "B T width"], positions: Int[Tensor, " T"], last_only: bool = False
    ) -> tuple[Float[Tensor, "B H t d"], Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]]:
        """Queries, keys and values, not yet rotated; with `last_only` the query of the last position alone."""
        asking = normed[:, -1:] if last_only else normed
        queries, keys, values = (
            linear(read).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, read in ((self.query, asking), (self.key, normed), (self.value, normed))
        )
        if self.log_length is not None:
            factor = ((positions[-asking.shape[1] :] + 1).double().log() / math.log(self.log_length)).clamp(min=1)
            queries = queries * factor[:, None].to(queries.dtype)
        return queries, keys, values


class GPTJ(nn.Module):
    """The model: token ids (B, T) to logits (B, T, V). It starts with random weights, of the sizes in `config`.

    `on_heads` is called with each layer's number and its `Heads` as it runs.

    >>> import torch, ropescope as rs
    >>> model = rs.GPTJ(rs.GPTJConfig(vocab_size=136, layers=2)).eval()
    >>> ids = torch.randint(136, (8, 17))
    >>> model(ids).shape
    torch.Size([8, 17, 136])
    >>> logits = model(ids, on_heads=lambda layer, heads: print(layer, rs.swap_scores(rs.layer_logits(heads)).positional.shape))
    0 torch.Size([8, 1])
    1 torch.Size([8, 1])
    """

    def __init__(self, config: GPTJConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config, rope) for rope in config.ropes)
        self.norm = nn.LayerNorm(config.width)
        self.readout = Linear(config.width, config.vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        on_heads: OnHeads | None = None,
        last_only: bool = False,
        positions: Int[Tensor, " T"] | None = None,
    ) -> Float[Tensor, "B t vocabulary"]:
        """Logits at every position, or with `last_only` at the last one alone.

        positions  to which RoPE rotates the tokens, instead of 0, 1, 2 ...; a query still sees the tokens up to its own
        """
        x = F.dropout(self.embedding(ids), self.config.dropout, self.training)
        for number, block in enumerate(self.blocks):
            # What other positions hold after the last layer is read by nobody, unless `on_heads` asks for their queries.
            x = block(x, number, on_heads, last_only and on_heads is None and number == len(self.blocks) - 1, positions)
        logits: Tensor = self.readout(self.norm(x[:, -1:] if last_only else x))
        return logits


def sharpened(model: GPTJ, length: int) -> GPTJ:
    """The same weights, in evaluation mode, with logits that grow with the length of inputs from `length` on."""
    sharp = GPTJ(replace(model.config, log_length=length)).to(model.readout.weight.dtype)
    sharp.load_state_dict(model.state_dict())
    return sharp.eval()


def require_vocabulary(model: GPTJ, task: str, size: int) -> None:
    """Raise ValueError if the model is of another task: it would read this one's tokens as others, or not at all."""
    if model.config.vocab_size != size:
        raise ValueError(
            f"the model has a vocabulary of {model.config.vocab_size} tokens and the {task} task one of {size}: "
            f"give a model trained on this task"
        )


# Our names and those of transformers.
_OUTSIDE = {"embedding": "transformer.wte", "norm": "transformer.ln_f", "readout": "lm_head"}
_IN_BLOCK = {
    "norm": "ln_1",
    "query": "attn.q_proj",
    "key": "attn.k_proj",
    "value": "attn.v_proj",
    "out": "attn.out_proj",
    "expand": "mlp.fc_in",
    "contract": "mlp.fc_out",
}
LONGEST = 8192
"""Positions for which `transformers` stores a table of angles; our own rotation has no limit."""


def _their_name(ours: str) -> str:
    module, kind = ours.rsplit(".", 1)
    if not module.startswith("blocks."):
        return f"{_OUTSIDE[module]}.{kind}"
    _, number, inner = module.split(".")
    return f"transformer.h.{number}.{_IN_BLOCK[inner]}.{kind}"


def save_gptj(model: GPTJ, folder: Path) -> list[str]:
    """Names of the files written: a folder that `transformers` loads too.

    A rotation or scale that the GPT-J of `transformers` does not have gets a model type of our own, so that the model cannot
    be loaded with another one.

    Raises OSError if the folder cannot be written to.

    >>> import tempfile, ropescope as rs
    >>> from pathlib import Path
    >>> model = rs.GPTJ(rs.GPTJConfig(vocab_size=10, layers=1, width=8, mlp_width=8))
    >>> rs.save_gptj(model, Path(tempfile.mkdtemp()))
    ['config.json', 'model.safetensors']
    """
    config = model.config
    plain = Rope(config.head_dim, rotary_dim=config.ropes[0].rotary_dim, pairing="interleaved")
    known = all(rope == plain for rope in config.ropes) and plain.rotary_dim > 0 and config.log_length is None
    settings: dict[str, Any] = {
        "architectures": ["GPTJForCausalLM"] if known else [],
        "model_type": "gptj" if known else "ropescope_gptj",
        "vocab_size": config.vocab_size,
        "n_positions": LONGEST,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.mlp_width,
        "rotary_dim": plain.rotary_dim,
        "activation_function": config.activation,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout),
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": str(model.readout.weight.dtype).removeprefix("torch."),
    }
    if not known:
        settings["log_length"] = config.log_length
        settings["ropes"] = [{"frequencies": rope.frequencies, "pairing": rope.pairing} for rope in config.ropes]
    weights = {_their_name(name): tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    write_whole(folder / "model.safetensors", save(weights, metadata={"format": "pt"}))
    write_whole(folder / "config.json", json.dumps(settings, indent=2) + "\n")
    return ["config.json", "model.safetensors"]


def load_gptj(folder: Path) -> GPTJ:
    """The model of a folder that `save_gptj` or `transformers` wrote, in evaluation mode; half precision becomes single.

    Raises ValueError if there is no model in the folder, it is damaged, or it is not a GPT-J.

    >>> import tempfile, ropescope as rs
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = rs.save_gptj(rs.GPTJ(rs.GPTJConfig(vocab_size=10, layers=1, width=8, mlp_width=8)), folder)
    >>> rs.load_gptj(folder).config.vocab_size
    10
    """
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = load_file(folder / "model.safetensors")
    except OSError as error:
        raise ValueError(f"{folder} holds no model ({error.strerror}): it needs config.json and model.safetensors") from None
    except (ValueError, SafetensorError, RecursionError) as error:
        raise ValueError(f"{folder} holds a damaged model ({error}): copy it anew") from None
    if not isinstance(settings, dict):
        raise ValueError(f"{folder} holds a damaged model (its config.json has no entries): copy it anew")
    if settings.get("model_type") not in ("gptj", "ropescope_gptj"):
        raise ValueError(f"{folder} holds a model of type {settings.get('model_type')!r}, not GPT-J")
    activation = settings.get("activation_function", "gelu_new")
    if activation not in tuple(ACTIVATIONS) or settings.get("layer_norm_epsilon", 1e-5) != 1e-5:
        raise ValueError(f"{folder} has another activation function or layer norm than GPT-J's own: not supported")
    try:
        model = _built(settings, weights)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ValueError(f"{folder} holds a damaged model ({reason}): copy it anew") from None
    require_finite(model, folder)
    return model.eval()


def _built(settings: dict[str, Any], weights: dict[str, Tensor]) -> GPTJ:
    """A model of these settings with these weights; nothing is built that is larger than the weights."""
    width, heads = settings["n_embd"], settings["n_head"]
    blocks = {name.split(".")[2] for name in weights if name.startswith("transformer.h.")}
    sizes = {"vocab_size": weights["lm_head.weight"].shape[0], "n_embd": weights["lm_head.weight"].shape[1]}
    sizes |= {"n_layer": len(blocks), "n_inner": weights["transformer.h.0.mlp.fc_in.weight"].shape[0]}
    for name, size in sizes.items():
        if (settings.get(name) or (4 * width if name == "n_inner" else None)) != size:
            raise ValueError(f"{name} is {settings.get(name)!r} in config.json, but weights have {size}")
    ropes: Rope | tuple[Rope, ...] = Rope(width // heads, rotary_dim=settings["rotary_dim"], pairing="interleaved")
    if "ropes" in settings:
        ropes = tuple(Rope(width // heads, **rope) for rope in settings["ropes"])
    config = GPTJConfig(
        vocab_size=settings["vocab_size"],
        layers=settings["n_layer"],
        heads=heads,
        width=width,
        mlp_width=settings.get("n_inner") or 4 * width,
        rope=ropes,
        dropout=settings.get("resid_pdrop", 0.0),
        log_length=settings.get("log_length"),
        activation=settings.get("activation_function", "gelu_new"),
    )
    dtype = weights["lm_head.weight"].dtype
    model = GPTJ(config).to(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
    model.load_state_dict({name: weights[_their_name(name)] for name in model.state_dict()})
    return model
