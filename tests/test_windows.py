"""Windowed heads: masking is plain attention over the keys listed, and a cache that holds less gives the same logits."""

import pytest
import torch
from slow_attention import FAMILIES, SINKS, STEPS, TOKENS, WINDOW, by_oracle, ids, limit, step_by_step
from transformers import DynamicCache

import ropescope as rs
from ropescope.models.adapter.interventions import combine
from ropescope.models.adapter.planes import key_heads_of
from ropescope.studies.conformance.families import tiny


def some_heads(adapter: rs.Adapter) -> list[tuple[int, int]]:
    """Every second key head, and all of the last layer."""
    every = [(layer, head) for layer, number in key_heads_of(adapter).items() for head in range(number)]
    return sorted({*every[::2], *(pair for pair in every if pair[0] == every[-1][0])})


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_are_plain_attention_over_the_keys_listed(family, monkeypatch):
    adapter = rs.Adapter(tiny(family))
    chosen = some_heads(adapter)
    with torch.no_grad(), rs.intervene(adapter, rs.window_heads(chosen, SINKS, WINDOW)):
        shown = adapter.model(input_ids=ids(), use_cache=False).logits
    expected, unchanged = by_oracle(adapter, monkeypatch, set(chosen))
    torch.testing.assert_close(shown, expected, atol=limit(family), rtol=0)
    assert (expected - unchanged).abs().max() > 1e-4


@pytest.mark.parametrize("family", ["gptj", "falcon"])
def test_windows_of_older_families(family):
    """With every head of one layer windowed, a key outside no longer matters to it, and one inside does."""
    adapter = rs.Adapter(tiny(family))
    every = [(layer, head) for layer, number in key_heads_of(adapter).items() for head in range(number)]
    layers = len(adapter.layers)
    far, near = TOKENS - 1 - layers * (WINDOW - 1) - 1, TOKENS - 2
    with torch.no_grad(), rs.intervene(adapter, rs.window_heads(every, 0, WINDOW)):
        before = adapter.model(input_ids=ids(), use_cache=False).logits[:, -1]
        for place, same in ((far, True), (near, False)):
            other = ids()
            other[:, place] += 1
            after = adapter.model(input_ids=other, use_cache=False).logits[:, -1]
            assert torch.allclose(before, after, atol=1e-12) is same, place


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "gpt_oss", "falcon", "gptj"])
@pytest.mark.parametrize("steps", STEPS)
def test_step_by_step_with_either_cache_is_prefill(family, steps):
    """One token at a time, or several; the usual cache with a mask, and one that holds less."""
    adapter = rs.Adapter(tiny(family))
    changes = rs.window_heads(some_heads(adapter), SINKS, WINDOW)
    with torch.no_grad(), rs.intervene(adapter, changes):
        whole = adapter.model(input_ids=ids(), use_cache=False).logits
        for cache in (DynamicCache(config=adapter.model.config), rs.WindowedCache(adapter, changes)):
            torch.testing.assert_close(step_by_step(adapter, cache, steps), whole, atol=limit(family), rtol=0)


def test_a_windowed_cache_holds_less():
    """Counted by hand: keys and values of 24 numbers of 8 bytes, of 19 tokens or of the sinks and the window less one."""
    adapter = rs.Adapter(tiny("llama"))
    heads = key_heads_of(adapter)
    chosen = [(layer, 0) for layer in heads]
    changes, caches = rs.window_heads(chosen, SINKS, WINDOW), {}
    with torch.no_grad(), rs.intervene(adapter, changes):
        for cache in (DynamicCache(config=adapter.model.config), rs.WindowedCache(adapter, changes)):
            written = adapter.model.generate(
                ids(1, 16), max_new_tokens=4, min_new_tokens=4, do_sample=False, past_key_values=cache
            )
            caches[type(cache)] = rs.cache_bytes(cache), written
    (full, one), (less, other) = caches[DynamicCache], caches[rs.WindowedCache]
    number = 2 * 24 * 8 * len(heads)
    assert full == number * 19 * 2
    assert less == number * (19 + SINKS + WINDOW - 1)
    assert torch.equal(one, other)


def test_rows_with_padding_in_front_see_their_own_first_tokens():
    adapter = rs.Adapter(tiny("llama"))
    changes = rs.window_heads(some_heads(adapter), SINKS, WINDOW)
    with torch.no_grad(), rs.intervene(adapter, changes):
        alone = adapter.model(input_ids=ids(), use_cache=False).logits
        padded = torch.nn.functional.pad(ids(), (4, 0))
        seen = torch.nn.functional.pad(torch.ones_like(ids()), (4, 0))
        options = {"attention_mask": seen, "position_ids": (seen.cumsum(-1) - 1).clamp(min=0)}
        shown = adapter.model(input_ids=padded, use_cache=False, **options).logits[:, 4:]
    torch.testing.assert_close(shown, alone, atol=1e-9, rtol=0)


def test_windows_go_with_other_changes():
    """A window on one head, gains of planes and another head removed: the same as each where only it has an effect."""
    adapter = rs.Adapter(tiny("llama"))
    window, gone = rs.window_heads([(0, 0)], SINKS, WINDOW), rs.remove_heads([(0, 0), (0, 1)])
    with torch.no_grad():
        both, alone = (
            _logits(adapter, changes)
            for changes in (combine(window, gone), gone)  # the heads that share key head 0 are gone
        )
        torch.testing.assert_close(both, alone, atol=1e-12, rtol=0)
        planes = rs.drop_planes(adapter, "fast")
        assert not torch.allclose(_logits(adapter, combine(window, planes)), _logits(adapter, planes), atol=1e-6)
    wide = rs.window_heads([(0, 0)], 0, TOKENS)
    torch.testing.assert_close(_logits(adapter, wide), _logits(adapter, {}), atol=1e-12, rtol=0)


def _logits(adapter: rs.Adapter, changes) -> torch.Tensor:
    with torch.no_grad(), rs.intervene(adapter, changes):
        return adapter.model(input_ids=ids(), use_cache=False).logits


def test_what_cannot_be_windowed_is_refused():
    adapter = rs.Adapter(tiny("llama"))
    cases = [
        (lambda: rs.window_heads([(0, 0)], -1, 3), "sinks must be at least 0"),
        (lambda: rs.window_heads([(0, 0)], 1, 0), "window must be at least 1"),
        (lambda: _logits(adapter, rs.window_heads([(0, 2)])), "windowed key heads of layer 0 must be from 0 to 1"),
        (lambda: _logits(adapter, combine(rs.window_heads([(0, 0)]), rs.window_heads([(0, 0)], 1, 2))), "two windows"),
        (
            lambda: adapter.model(input_ids=ids(), past_key_values=rs.WindowedCache(adapter, rs.window_heads([(0, 0)]))),
            "in force",
        ),
        (_latent, "all heads share"),
        (lambda: _read(adapter), "there is no one M"),
        (_gptj, "our GPT-J has no cache"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def _read(adapter: rs.Adapter) -> None:
    with rs.intervene(adapter, rs.window_heads([(0, 0)], SINKS, WINDOW)):
        adapter.read(ids(), lambda read: None)


def _latent() -> None:
    adapter, changes = rs.Adapter(tiny("deepseek_v3")), rs.window_heads([(0, 0)])
    with rs.intervene(adapter, changes):
        adapter.model(input_ids=ids(), past_key_values=rs.WindowedCache(adapter, changes))


def _gptj() -> None:
    with rs.intervene(rs.bundled("number"), rs.window_heads([(0, 0)])):
        pass
