"""Sharpened heads: logits grow as plain attention, head by head and query by query, says; with any cache and other changes."""

import math
from dataclasses import replace

import pytest
import torch
from slow_attention import FAMILIES, LENGTH, SINKS, STEPS, TOKENS, WINDOW, by_oracle, ids, limit, step_by_step
from transformers import DynamicCache, StaticCache

import ropescope as rs
from ropescope.models.adapter import read_layers
from ropescope.models.adapter.interventions import combine
from ropescope.models.adapter.planes import heads_of
from ropescope.models.gptj import sharpened
from ropescope.studies.conformance.families import tiny


def some_heads(adapter: rs.Adapter) -> list[tuple[int, int]]:
    """Every second query head."""
    return [(layer, head) for layer, number in heads_of(adapter).items() for head in range(number)][::2]


@pytest.mark.parametrize("family", FAMILIES)
def test_sharpened_heads_are_plain_attention_with_larger_logits(family, monkeypatch):
    adapter = rs.Adapter(tiny(family))
    chosen = some_heads(adapter)
    with torch.no_grad(), rs.intervene(adapter, rs.sharpen_heads(chosen, LENGTH)):
        shown = adapter.model(input_ids=ids(), use_cache=False).logits
    expected, unchanged = by_oracle(adapter, monkeypatch, set(), set(chosen))
    torch.testing.assert_close(shown, expected, atol=limit(family), rtol=0)
    torch.testing.assert_close(shown[:, :LENGTH], unchanged[:, :LENGTH], atol=limit(family), rtol=0)
    assert (expected - unchanged)[:, LENGTH:].abs().max() > 1e-4


def test_a_windowed_head_counts_the_keys_that_it_sees(monkeypatch):
    """With 2 sinks and a window of 3 no query of a windowed head sees more than 5 keys: its logits do not grow."""
    adapter = rs.Adapter(tiny("llama"))
    sharper, windowed = [(0, 0), (0, 3), (1, 1)], [(0, 0)]
    changes = combine(rs.window_heads(windowed, SINKS, WINDOW), rs.sharpen_heads(sharper, LENGTH))
    with torch.no_grad(), rs.intervene(adapter, changes):
        shown = adapter.model(input_ids=ids(), use_cache=False).logits
    expected, _ = by_oracle(adapter, monkeypatch, set(windowed), set(sharper))
    torch.testing.assert_close(shown, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", [*FAMILIES, "falcon", "gptj", "deepseek_v3"])
@pytest.mark.parametrize("steps", STEPS)
def test_step_by_step_with_a_cache_is_prefill(family, steps):
    """One token at a time, or several; the usual cache, which holds less for sliding layers, and one with empty places."""
    adapter = rs.Adapter(tiny(family))
    caches = [DynamicCache(config=adapter.model.config)]
    if family == "llama":
        caches.append(StaticCache(config=adapter.model.config, max_cache_len=TOKENS + 6))
    with torch.no_grad(), rs.intervene(adapter, rs.sharpen_heads(some_heads(adapter), LENGTH)):
        whole = adapter.model(input_ids=ids(), use_cache=False).logits
        for cache in caches:
            torch.testing.assert_close(step_by_step(adapter, cache, steps), whole, atol=limit(family), rtol=0)


def test_padding_in_front_is_not_counted():
    adapter = rs.Adapter(tiny("llama"))
    with torch.no_grad(), rs.intervene(adapter, rs.sharpen_heads(some_heads(adapter), LENGTH)):
        alone = adapter.model(input_ids=ids(), use_cache=False).logits
        padded = torch.nn.functional.pad(ids(), (4, 0))
        seen = torch.nn.functional.pad(torch.ones_like(ids()), (4, 0))
        options = {"attention_mask": seen, "position_ids": (seen.cumsum(-1) - 1).clamp(min=0)}
        shown = adapter.model(input_ids=padded, use_cache=False, **options).logits[:, 4:]
    torch.testing.assert_close(shown, alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", ["falcon", "gptj", "deepseek_v3"])
def test_logits_that_are_read_have_grown(family):
    """The adapter checks what it reads against the model's own weights; the first layer's input is unchanged."""
    adapter = rs.Adapter(tiny(family))
    first, found = adapter.layers[0], []
    for changes in ({}, rs.sharpen_heads([(first, 1)], LENGTH)):
        with rs.intervene(adapter, changes):
            rows = {}
            read_layers(adapter, ids(), lambda read, rows=rows: rows.update({read.layer: read.factors.diagonal()}))
            found.append(rows[first])
    grown = found[0].clone()
    grown[:, 1] *= math.log(TOKENS) / math.log(LENGTH)
    torch.testing.assert_close(found[1], grown, atol=1e-9, rtol=0)


def test_our_own_model_sharpened_in_all_heads_is_the_one_with_a_log_length():
    torch.manual_seed(0)
    model = rs.GPTJ(rs.GPTJConfig(60, layers=2, heads=2, width=32, mlp_width=32)).double().eval()
    every = [(layer, head) for layer in range(2) for head in range(2)]
    with rs.intervene(model, rs.sharpen_heads(every, LENGTH)):
        shown, last = model(ids()), model(ids(), last_only=True)
    expected = sharpened(model, LENGTH)(ids())
    torch.testing.assert_close(shown, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(last, expected[:, -1:], atol=1e-12, rtol=0)
    with rs.intervene(model, rs.sharpen_heads([(1, 0)], LENGTH)):
        some = model(ids())
    assert torch.equal(some[:, :LENGTH], model(ids())[:, :LENGTH])
    assert not torch.allclose(some, expected)


def test_what_cannot_be_sharpened_is_refused():
    adapter = rs.Adapter(tiny("llama"))
    with pytest.raises(ValueError, match="length must be at least 2, as log 1 is 0, not 1"):
        rs.sharpen_heads([(0, 0)], 1)
    with (
        pytest.raises(ValueError, match="sharper heads of layer 0 must be from 0 to 3"),
        rs.intervene(adapter, rs.sharpen_heads([(0, 4)], 5)),
    ):
        pass
    twice = combine(rs.sharpen_heads([(0, 1)], 5), rs.sharpen_heads([(0, 1)], 6))
    with pytest.raises(ValueError, match="a head of layer 0 is sharpened from two lengths"), rs.intervene(adapter, twice):
        pass
    once = rs.sharpen_heads([(0, 1)], 5)
    assert combine(once, once) == once
    assert combine({0: replace(once[0], out=(2,))}, rs.sharpen_heads([(0, 2)], 5))[0].out == (2,)
