"""Matrix products and attention."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

from ..kernel import Kernel, Tensor, Tensors, kernel


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(x, weight, bias)


def _matmul(x: Tensor, y: Tensor, transpose_x: bool, transpose_y: bool) -> Tensor:
    return torch.matmul(x.mT if transpose_x else x, y.mT if transpose_y else y)


def _einsum(values: Tensors, equation: str) -> Tensor:
    result: Tensor = torch.einsum(equation, *values)
    return result


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


KERNELS: Final[dict[str, Kernel]] = {
    "linear": kernel(_linear),
    "matmul": kernel(_matmul),
    "einsum": kernel(_einsum),
    "scaled_dot_product_attention": kernel(_attention),
}
