"""Models as users have them: compiled, with LoRA, quantised, spread over devices by `accelerate`, offloaded."""

import json
import subprocess
import sys

import accelerate
import bitsandbytes
import numpy as np
import peft
import pytest
import torch
import transformers

import ropescope as rs
from ropescope.models.adapter import device_of, named_tensors
from ropescope.models.source import parameter_hash
from ropescope.studies.conformance.families import tiny

IDS = torch.randint(4, 60, (1, 20), generator=torch.Generator().manual_seed(3))
OF_PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for the old name


def scores(model):
    return rs.profile(model, [IDS[0]], planes=False, sensitivity=False)


def same(found, expected, limit=1e-12):
    for name in ("positional", "symbolic"):
        np.testing.assert_allclose(found[name], expected[name], atol=limit, err_msg=name)


@pytest.fixture(params=["llama", "hunyuan_v1_dense"])  # the second has a weight that the adapter itself reads
def family(request):
    return request.param


def test_offloaded_to_memory(family):
    expected, whole = scores(tiny(family)), parameter_hash(tiny(family))
    model = accelerate.cpu_offload(tiny(family))
    assert all(parameter.is_meta for parameter in model.parameters())
    same(scores(model), expected)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert parameter_hash(model) == whole
    assert len(dict(named_tensors(model))) >= len(list(model.parameters()))


def test_offloaded_to_disk(family, tmp_path):
    expected = scores(tiny(family))
    same(scores(accelerate.disk_offload(tiny(family), str(tmp_path))), expected)


def test_a_device_map(tmp_path):
    """Some layers in memory, some on disk, as `device_map="auto"` does where memory is short."""
    model = tiny("llama", dtype=torch.float32)
    expected = scores(model)
    model.save_pretrained(tmp_path / "model")
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    places |= {"model.layers.0": "cpu", "model.layers.1": "disk"}
    spread = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "offloaded")
    )
    assert {parameter.is_meta for parameter in spread.parameters()} == {True, False}
    assert device_of(spread) == torch.device("cpu")
    same(scores(spread), expected, 1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of the compiler's own making
def test_compiled():
    expected = scores(tiny("llama"))
    same(scores(torch.compile(tiny("llama"))), expected)
    inner = tiny("llama")
    inner.compile()
    inner.model.layers[0] = torch.compile(inner.model.layers[0])
    inner.forward = torch.compile(inner.forward)
    same(scores(inner), expected)


@OF_PEFT
def test_lora():
    model = tiny("llama", dtype=torch.float32)
    plain = scores(model)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "k_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(model, config)
    found = scores(tuned)
    assert np.abs(found.positional - plain.positional).max() > 1e-3
    same(found, scores(tuned.merge_and_unload()), 2e-3)  # single precision rounds a sum of products otherwise


@OF_PEFT
def test_learnt_vectors_in_front_are_refused():
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    with pytest.raises(rs.RefusedError, match=r"no tokens: give its get_base_model\(\) instead"):
        rs.Adapter(peft.get_peft_model(tiny("llama", dtype=torch.float32), config))


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised(tmp_path, bits):
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, num_hidden_layers=2, **sizes))
    plain.save_pretrained(tmp_path)
    config = transformers.BitsAndBytesConfig(load_in_8bit=bits == 8, load_in_4bit=bits == 4)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=config, dtype=torch.bfloat16)
    kinds = {type(module) for module in model.modules()}
    assert {8: bitsandbytes.nn.Linear8bitLt, 4: bitsandbytes.nn.Linear4bit}[bits] in kinds
    found = scores(model)
    assert (found.check_error <= found.check_limit).all()
    assert np.abs(found.positional - scores(plain).positional).max() > 0


PATCHED = """
import kvpress, sys, torch, ropescope as rs
from ropescope.studies.conformance.families import tiny
ids = torch.tensor(list(map(int, sys.argv[1].split(","))))
for implementation in ("sdpa", "eager"):
    model = tiny("llama")
    model.set_attn_implementation(implementation)
    print(rs.profile(model, [ids], planes=False, sensitivity=False)["positional"].values.ravel().tolist())
"""


@pytest.mark.slow
def test_beside_a_library_that_sets_attention_functions():
    """kvpress sets its own in the instance that models look into, which hides what is registered for all."""
    pytest.importorskip("kvpress")
    command = [sys.executable, "-c", PATCHED, ",".join(map(str, IDS[0].tolist()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = scores(tiny("llama"))["positional"].values.ravel()
    for line in done.stdout.splitlines():
        np.testing.assert_allclose(json.loads(line), expected, atol=1e-6)  # "eager" has its softmax in float32
