"""Estimates of what larger models take: sizes of known models, and arithmetic that can be done by hand."""

import math
from dataclasses import replace

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from ropescope.models.stream import token_bytes
from ropescope.studies.bench.estimates import LLAMAS, MACHINES, PROMPTS, TOKENS, Machine, Measured, estimate, measured

FOUND = Measured(scored=1.5, flops=1e11, handling=1e9)


def test_parameters_are_those_of_the_models():
    assert [round(shape.parameters / 1e9, 2) for shape in LLAMAS] == [8.03, 70.55, 405.85]


def test_parameters_are_those_of_transformers():
    shape = replace(LLAMAS[0], hidden_size=32, intermediate_size=48, layers=3, num_attention_heads=4, key_heads=2)
    shape = replace(shape, head_dim=8, vocabulary=60)
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    assert shape.parameters == sum(each.numel() for each in LlamaForCausalLM(config).parameters())


def test_a_model_that_fits_is_read_once():
    found = estimate(LLAMAS[0], MACHINES[1], FOUND)
    assert found["read"] == found["weights"] == 2 * LLAMAS[0].parameters
    assert found["batches"] == 1
    assert found["weights"] < found["memory"] < MACHINES[1].memory + 1e9


def test_a_model_that_does_not_fit_is_read_in_every_pass():
    shape, machine = LLAMAS[1], Machine("", 8e9, 2e9, cores=8)
    found = estimate(shape, machine, FOUND)
    each = 2 * (shape.parameters - shape.embedding)
    assert found["batches"] == 1
    assert found["read"] == 2 * shape.parameters + 4 * each
    operations = each * PROMPTS * TOKENS * FOUND.scored
    assert found["seconds"] == pytest.approx(found["read"] * 1.5e-9 + operations / 8e11)
    assert found["memory"] < 8.5e9
    small = replace(machine, memory=2 * shape.layer + 10 * TOKENS * token_bytes(vars(shape), 2, TOKENS) + 1e9)
    assert estimate(shape, small, FOUND)["batches"] in (3, 4, 5)
    assert estimate(shape, replace(machine, memory=1e9), FOUND)["seconds"] == math.inf


def test_what_is_spread_stays():
    shape, machine = LLAMAS[2], MACHINES[2]
    found = estimate(shape, machine, FOUND)
    assert found["read"] < estimate(shape, replace(machine, spread=False), FOUND)["read"] / 2
    assert found["memory"] == pytest.approx(machine.memory, rel=0.01)


def test_rates_are_read_from_recorded_runs():
    profile = {"tokens": 100, "seconds": {"plain": 2.0}, "scored_over_plain": 1.4}
    streamed = {"streamed": {"seconds": 30.0, "read_bytes": 40e9}, "batch": {"seconds": 10.0}}
    assert measured(profile, 1_000_000_000, streamed) == Measured(1.4, 1e11, 2e9)
