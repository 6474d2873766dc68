"""Loading of models: code that comes with a model runs only if the user asks for it."""

import json
import sys
from fnmatch import fnmatch

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.models.identity import model_files

CODE = """
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

Path(__file__).parent.joinpath({marker!r}).touch()


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_code_of_a_model_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))  # transformers adds the folder of modules
    marker = tmp_path / "ran"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    auto_map = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto_map}))
    with pytest.raises(ValueError, match="contains custom code"):
        rs.load_model(str(folder))
    assert not marker.exists()
    with pytest.raises(ValueError, match="cannot be opened as a causal language model"):  # it has no weights
        rs.load_model(str(folder), trust_remote_code=True)
    assert marker.exists()  # the code would have run before, had it been allowed to


def test_names_of_the_first_release():
    assert (rs.Door, rs.controlled, rs.heads_out) == (rs.Adapter, rs.intervene, rs.remove_heads)


def tiny_folder(folder):
    """A folder of a tiny model of `transformers`, without a tokenizer."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=64))
    model.save_pretrained(folder)
    return model


def test_pickled_weights_are_never_loaded(tmp_path):
    model = tiny_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")  # a real one, which `transformers` would load
    LlamaForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"weights are pickled \(pytorch_model.bin\).*convert them to safetensors") as refused:
        rs.load_model(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_settings_cannot_name_pickled_weights(tmp_path):
    """`transformers` would load the file that an entry of config.json names, though there are weights in safetensors."""
    model = tiny_folder(tmp_path)
    torch.save(model.state_dict(), tmp_path / "adapter_model.bin")
    settings = json.loads((tmp_path / "config.json").read_text()) | {"transformers_weights": "adapter_model.bin"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"ask for pickled weights \(adapter_model.bin\), which are never loaded"):
        rs.load_model(str(tmp_path))


def test_a_model_is_known_by_every_file_that_is_read(tmp_path):
    tiny_folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    for note in ("source.json", "trainer_state.json", "README.md", "optimizer.pt"):
        (tmp_path / note).write_text("{}")
    weights, files = model_files(tmp_path)
    assert set(weights) == {"model.safetensors"}
    assert set(files) == {"config.json", "generation_config.json", "chat_template.jinja"}
    assert rs.load_model(str(tmp_path)).about["files"] == files


def test_a_hub_id_is_loaded_from_the_folder_of_its_commit(tmp_path, monkeypatch):
    """The download names no pickles and no code; the commit is recorded."""
    commit, asked = "a" * 40, {}
    tiny_folder(tmp_path / commit)

    def snapshot_download(source, **options):
        asked[source] = options
        return str(tmp_path / commit)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    about = rs.load_model("org/name").about
    assert (about["source"], about["revision"]) == ("org/name", commit)
    assert about["weights"] == model_files(tmp_path / commit)[0]
    wanted = asked["org/name"]["allow_patterns"]
    assert not any(fnmatch(name, one) for name in ("pytorch_model.bin", "own.py") for one in wanted)
