"""Several prompts of unequal length in one forward pass."""

import numpy as np
import pytest
import torch

import ropescope as rs
from ropescope.models.adapter import read_each
from ropescope.studies.conformance.families import rope_variants, tiny
from ropescope.studies.head_scores import Scoring, measure, measure_each
from ropescope.tasks.prompts import as_prompt

GENERATOR = torch.Generator().manual_seed(3)
PROMPTS = [as_prompt(torch.randint(4, 60, (length,), generator=GENERATOR).tolist()) for length in (9, 20, 14, 20)]
ANSWERED = [rs.Prompt(prompt.ids, prompt.blocks, prompt.tokens, 7, (7, 8)) for prompt in PROMPTS]
SCORING = Scoring(sensitivity=False)

# These compute norms or softmax in single precision, which sums differently in longer rows.
SINGLE = {"gemma2", "codegen", "gptj"}


def compare(adapter, limit):
    rows = measure_each(adapter, ANSWERED, SCORING)
    assert [int(row["tokens"]) for row in rows] == [9, 20, 14, 20]
    for prompt, row in zip(ANSWERED, rows, strict=True):
        alone = measure(adapter, prompt, SCORING)
        assert set(row) == set(alone)
        for name, value in alone.items():
            within = 1e-6 if name == "check_error" else limit  # the softmax of most is in single precision
            np.testing.assert_allclose(row[name], value, atol=within, rtol=within, err_msg=name)


@pytest.mark.parametrize(
    "family", ["llama", "gemma2", "qwen3", "mixtral", "gptj", "falcon", "deepseek_v3", "gpt_oss", "qwen3_next", "codegen"]
)
@pytest.mark.slow
def test_a_batch_has_the_scores_of_its_prompts_one_by_one(family):
    """Padding at the end is harmless: no query before it sees it, and nothing else of a token depends on later ones."""
    compare(rs.Adapter(tiny(family)), 1e-5 if family in SINGLE else 1e-9)


@pytest.mark.slow
def test_rotations_that_depend_on_the_length_have_a_pass_for_each():
    passes = {}
    for name, model in rope_variants().items():
        adapter = rs.Adapter(model)
        counted = []
        hook = model.register_forward_pre_hook(lambda *args, counted=counted: counted.append(args))
        measure_each(adapter, PROMPTS, SCORING)
        passes[name] = len(counted)
        hook.remove()
        compare(adapter, 1e-9)
    assert set(passes.values()) == {1, 3}  # four prompts of three lengths
    assert {name for name, count in passes.items() if count == 3} == {"dynamic", "longrope", "partial longrope"}


def test_logits_are_those_after_each_prompts_last_token():
    model = tiny("llama")
    inputs = [torch.from_numpy(prompt.ids) for prompt in PROMPTS]
    logits = rs.Adapter(model).read_each(inputs, lambda number, read: None)
    own = torch.stack([model(ids[None], use_cache=False).logits[0, -1].detach() for ids in inputs])
    torch.testing.assert_close(logits, own, atol=1e-12, rtol=0)


def test_the_output_matrix_is_applied_to_last_tokens_only():
    model, rows = tiny("llama"), []
    model.lm_head.register_forward_hook(lambda module, args, output: rows.append(tuple(output.shape[:2])))
    rs.Adapter(model).read_each([torch.from_numpy(prompt.ids) for prompt in PROMPTS], lambda number, read: None)
    assert rows[-1] == (4, 1)


def test_prompts_of_our_own_models():
    inputs = [torch.randint(120, (length,)) for length in (9, 17)]
    reads = []
    logits = read_each(rs.bundled("number"), inputs, lambda number, read: reads.append((number, read.heads.keys.shape[2])))
    assert len(logits) == 2
    assert set(reads) == {(0, 9), (1, 17)}
