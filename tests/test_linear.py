"""Products of matrices in training: the same numbers as `nn.Linear` up to rounding, and in evaluation the same bits."""

import pytest
import torch
from torch import nn

from ropescope.models import linear
from ropescope.models.gptj import GPTJ, GPTJConfig
from ropescope.models.linear import LARGE, Linear

needs_it = pytest.mark.skipif(not linear.HERE, reason="oneDNN's product is not there: nn.Linear is used")


def pair(read, out, bias=True):
    torch.manual_seed(0)
    ours, theirs = Linear(read, out, bias=bias), nn.Linear(read, out, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(layer, values):
    values = values.detach().requires_grad_()
    output = layer(values)
    torch.manual_seed(1)
    (output * torch.randn(output.shape)).sum().backward()
    return [output.detach(), values.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(64, 17, 128), (300, 128), (2, 3, 5, 128), (1, 128), (0, 128)])
@pytest.mark.parametrize("out", [512, 130])
def test_as_plain_layers(shape, out, bias):
    torch.manual_seed(2)
    values = torch.randn(shape)
    found, expected = (gradients(layer, values) for layer in pair(128, out, bias))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("rows", [lambda x: x[:, -1:], lambda x: x.transpose(0, 1), lambda x: x[::2], lambda x: x.flip(1)])
def test_rows_in_any_order_of_memory(rows):
    values = rows(torch.randn(600, 17, 128))
    for ours, theirs in zip(*(gradients(layer, values) for layer in pair(128, 128)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=5e-4)


@needs_it
def test_where_it_is_used(monkeypatch):
    """In training of single precision on a processor, for large products."""
    used = []
    usual = linear._product
    monkeypatch.setattr(linear, "_product", lambda *given: used.append(1) or usual(*given))

    def uses(layer, values):
        used.clear()
        layer(values)
        return bool(used)

    layer = Linear(128, 512)
    large = torch.randn(LARGE // 512 // 128, 128)
    assert uses(layer, large)
    assert not uses(layer, large[:-1])
    with torch.no_grad():
        assert not uses(layer, large)
    with torch.autocast("cpu"):
        assert not uses(layer, large)
    assert not uses(layer.eval(), large)
    assert not uses(layer.train().double(), large.double())


def test_evaluation_is_that_of_plain_layers():
    ours, theirs = pair(128, 512)
    values = torch.randn(64, 17, 128)
    assert torch.equal(ours.eval()(values), theirs(values))


def test_a_model_trains_as_with_plain_layers(monkeypatch):
    """Loss and gradients of a whole model, whose last layer reads the last position of every sequence alone."""

    def trained(here):
        monkeypatch.setattr(linear, "HERE", here and linear.HERE)
        torch.manual_seed(0)
        model = GPTJ(GPTJConfig(50, layers=3, heads=2, width=128, dropout=0.0)).train()
        loss = model(torch.randint(50, (256, 17)), last_only=True).logsumexp(-1).square().mean()
        loss.backward()
        return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}

    (plain, expected), (fast, found) = trained(False), trained(True)
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=0)
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-9, name


def test_training_is_the_same_every_time():
    layer, values = Linear(128, 512), torch.randn(1088, 128)
    for one, other in zip(gradients(layer, values)[:2], gradients(layer, values)[:2], strict=True):
        assert torch.equal(one, other)
