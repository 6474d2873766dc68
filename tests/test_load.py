"""Loading of models: code that comes with a model runs only if the user asks for it."""

import json
import sys

import pytest

import ropescope as rs

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
