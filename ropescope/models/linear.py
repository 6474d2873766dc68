"""Products of matrices in training, by the faster of the two libraries that PyTorch comes with.

PyTorch multiplies matrices of single precision with MKL. oneDNN took half the time on an AMD EPYC with AVX-512; other
processors were not measured. Sums are added in another order, so results differ by rounding. Evaluation is left as it is:
scores and accuracies of a model do not depend on the library.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

HERE = (
    platform.machine() in ("x86_64", "AMD64")
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
"""Whether this machine and this version of PyTorch have oneDNN's product of dense matrices."""
LARGE = 2**22
"""Multiplications from which oneDNN is worth its longer start."""


class Linear(nn.Linear):
    """`nn.Linear`, whose products are oneDNN's in training on a processor, where it is available."""

    def forward(self, input: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch out"]:
        """Output for every row."""
        fast = HERE and self.training and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        large = input.numel() * self.out_features >= LARGE
        if (
            fast
            and large
            and all(values.device.type == "cpu" and values.dtype == torch.float32 for values in (input, self.weight))
        ):
            rows = input.reshape(-1, self.in_features)
            output: Tensor = _Product.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return output.view(*input.shape[:-1], self.out_features)
        return super().forward(input)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = rows.contiguous()  # transposed rows with gaps between them, which oneDNN would read one number at a time
        context.save_for_backward(rows, weight)
        return _product(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (rows, weight), gradient = context.saved_tensors, gradient.contiguous()
        of_rows, of_weight, of_bias = context.needs_input_grad
        return (
            _product(gradient, weight.T) if of_rows else None,
            _product(gradient.T, rows.T) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What `F.linear` computes."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return found
