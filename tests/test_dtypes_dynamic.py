"""Sizes that change from call to call, where the core computes differently from the runtime's kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from referee import check
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

F16, F32, F64, I64 = torch.float16, torch.float32, torch.float64, torch.int64
ONES = torch.ones(4, dtype=F16)

#: Case -> function, dtype, number of inputs, tolerance. Inputs are (n, 4, 6), or (2, n, 6) where the name says "rows".
CASES: dict[str, tuple[Callable[..., Any], torch.dtype, int, float]] = {
    "sums of int64": (lambda x: (x.sum(0), x.sum(1), x.sum(-1, keepdim=True), x.sum()), I64, 1, 0),
    "sums of float64": (lambda x: (x.sum(0), x.sum(1), x.sum()), F64, 1, 1e-12),
    "running sum": (lambda x: x.cumsum(0), F16, 1, 4e-3),
    "running product": (lambda x: x.cumprod(1), F32, 1, 1e-5),
    "layer norm, narrow": (lambda x: F.layer_norm(x, (6,)), F16, 1, 4e-3),
    "layer norm, wide": (lambda x: F.layer_norm(x, (6,)), F64, 1, 1e-12),
    "group norm, wide": (lambda x: F.group_norm(x, 2), F64, 1, 1e-12),
    "instance norm": (F.instance_norm, F16, 1, 4e-3),
    "batch norm": (lambda x: F.batch_norm(x, 0 * ONES, ONES), F16, 1, 4e-3),
    "convolution": (lambda x: F.conv1d(x, torch.ones(3, 4, 3, dtype=F16)), F16, 1, 8e-3),
    "attention": (F.scaled_dot_product_attention, F16, 3, 4e-3),
    "attention, causal, rows": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), F16, 3, 4e-3),
    "windows": (lambda x: (F.avg_pool1d(x, 2), F.adaptive_avg_pool1d(x, 3)), F32, 1, 1e-5),
    "floor division": (lambda x, y: (x // (y.abs() + 1), x % (y.abs() + 1)), F32, 2, 1e-5),
    "truncated division": (
        lambda x, y: (torch.div(x, y.abs() + 1, rounding_mode="trunc"), torch.fmod(x, y.abs() + 1)),
        I64,
        2,
        0,
    ),
    "powers": (lambda x: (x**3, 2 ** x.abs()), I64, 1, 0),
    "shifts": (lambda x: (x << x.abs(), x >> 2, x >> x), I64, 1, 0),
    "sorted": (lambda x: (x.sort(0).values, x.sort(-1).values), F32, 1, 0),
    "variance": (lambda x: x.var(0), F16, 1, 4e-3),
    "signs and roundings": (lambda x: (x.sign(), x.round(decimals=1), x.exp2(), torch.fmin(x, 2 * x)), F32, 1, 1e-5),
    "mixed": (lambda x: (x + torch.arange(6), x * torch.tensor(2), torch.where(x > 0, x, 1)), F32, 1, 1e-6),
    "views": (lambda x: (x.diagonal(0, 1, 2), x.unfold(2, 2, 2)), F32, 1, 0),
    "no elements": (lambda x: (torch.cat([x[:, :0], x], 1), x[:, :, :0] @ x[:, :, :0].mT), F32, 1, 0),
}


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@pytest.mark.parametrize("name", CASES)
def test_other_spellings_take_changing_sizes(name: str) -> None:
    function, dtype, count, tolerance = CASES[name]
    rows = name.endswith("rows")
    generator = torch.Generator().manual_seed(0)

    def inputs(size: int) -> tuple[torch.Tensor, ...]:
        shape = (2, size, 6) if rows else (size, 4, 6)
        return tuple((2 * torch.randn(shape, generator=generator) + number).to(dtype) for number in range(count))

    changing = {int(rows): Dim("n", min=2, max=9)}
    calls = [inputs(size) for size in (5, 2, 9, 3)]
    check(Call(function), calls[0], calls, dynamic_shapes={"inputs": (changing,) * count}, tolerance=tolerance)
