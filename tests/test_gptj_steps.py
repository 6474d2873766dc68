"""GPT-J step by step computes what the model computes, also after a cached prefix."""

import pytest
import torch

from ropescope.models.gptj import GPTJ, GPTJConfig
from ropescope.models.gptj_steps import read_front, run
from ropescope.rope import Rope


@pytest.fixture(params=[1, 2], ids=["one head", "two heads"])
def model(request) -> GPTJ:
    torch.manual_seed(0)
    config = GPTJConfig(20, layers=3, heads=request.param, width=16, mlp_width=24, dropout=0.5)
    model = GPTJ(config).double().eval()
    for weight in model.parameters():
        weight.data += 0.5 * torch.randn_like(weight)
    return model


def test_steps_equal_the_model(model):
    ids = torch.randint(20, (5, 9))
    assert torch.allclose(run(model, ids), model(ids)[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [1, 7, 40])
def test_behind_a_front_as_in_one_piece(model, length):
    front, ids = torch.randint(20, (length,)), torch.randint(20, (4, 6))
    whole = torch.cat((front.expand(4, -1), ids), 1)
    assert torch.allclose(run(model, ids, read_front(model, front)), model(whole)[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [7, 9])
def test_a_front_in_one_piece_is_the_front(model, window):
    ids = torch.randint(20, (7,))
    plain, short = read_front(model, ids), read_front(model, ids, window, torch.arange(7))
    for whole, piece in zip(plain.keys + plain.values, short.keys + short.values, strict=True):
        assert torch.allclose(whole, piece, rtol=0, atol=1e-12)


def test_a_front_in_pieces_holds_short_inputs(model):
    """Each piece carries what it carries alone, and its keys turn with where they are said to stand."""
    ids, places = torch.randint(20, (8,)), torch.tensor([5, 6, 7, 5, 6, 7, 5, 6])
    front = read_front(model, ids, 3, places)
    assert front.length == 8
    for start in (0, 3, 6):
        alone = read_front(model, ids[start : start + 3])
        for layer, block in enumerate(model.blocks):
            part = slice(start, start + 3)
            assert torch.allclose(front.values[layer][:, part], alone.values[layer], rtol=0, atol=1e-12)
            turned = block.rope.rotate(alone.keys[layer], torch.full((alone.length,), 5))  # 5 further than where it stood
            assert torch.allclose(front.keys[layer][:, part], turned, rtol=0, atol=1e-12)


def test_states_and_weights_are_those_of_the_model(model):
    ids, states, weights = torch.randint(20, (2, 6)), [], []
    run(model, ids, on_weights=lambda _, w: weights.append(w), on_state=lambda _, x: states.append(x))
    x = model.embedding(ids)
    for block, state in zip(model.blocks, states[:-1], strict=True):
        assert torch.allclose(state, x, rtol=0, atol=1e-12)
        x = block(x)
    assert torch.allclose(states[-1], x, rtol=0, atol=1e-12)
    for weight in weights:
        assert torch.allclose(weight.sum(-1), torch.ones(()).double())
        assert not weight.triu(1).any()


def test_weights_can_be_replaced(model):
    """Every position attending to itself alone is a model without attention between positions."""
    ids = torch.randint(20, (2, 6))
    alone = run(model, ids, on_weights=lambda _, w: torch.eye(6).double().expand_as(w))
    assert torch.allclose(alone, model(ids[:, -1:])[:, 0], rtol=0, atol=1e-12)


def test_any_rotation(model):
    ropes = (Rope(16, rotary_dim=0), Rope(16, rotary_dim=8), Rope(frequencies=[0.3] * 8))
    model = GPTJ(GPTJConfig(20, layers=3, width=16, mlp_width=24, rope=ropes)).double().eval()
    front, ids = torch.randint(20, (5,)), torch.randint(20, (3, 4))
    whole = torch.cat((front.expand(3, -1), ids), 1)
    assert torch.allclose(run(model, ids, read_front(model, front)), model(whole)[:, -1], rtol=0, atol=1e-12)
