"""Pools, reductions and softmax, compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from softmaxes import SOFTMAXES
from torch import nn

POOLS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "maximum": (lambda: nn.MaxPool2d(2), (1, 8, 12, 12)),
    "maximum, padded": (lambda: nn.MaxPool2d(3, 2, 1), (1, 8, 13, 12)),
    "maximum, ceil": (lambda: nn.MaxPool2d(3, 2, ceil_mode=True), (1, 8, 12, 12)),
    "maximum, stride 4": (lambda: nn.MaxPool2d(4), (1, 8, 12, 13)),
    "maximum, 1-d": (lambda: nn.MaxPool1d(2), (2, 8, 20)),
    "average": (lambda: nn.AvgPool2d(2), (1, 8, 12, 12)),
    "average, padding counts": (lambda: nn.AvgPool2d(3, 2, 1), (1, 8, 12, 12)),
    "average, padding does not": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 8, 12, 12)),
    "average, ceil": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 8, 12, 12)),
    "average, divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), (1, 8, 12, 12)),
    "average, padding does not, divisor": (
        lambda: lambda x: nn.AvgPool2d(3, 1, (1, 0), count_include_pad=False, divisor_override=5)(x + x),
        (1, 1, 2, 7),
    ),
    "average, stride 5": (lambda: nn.AvgPool2d(5), (1, 8, 20, 21)),
    "average, 1-d": (lambda: nn.AvgPool1d(2), (1, 8, 20)),
    "to one": (lambda: nn.AdaptiveAvgPool2d(1), (1, 8, 12, 12)),
    "to several": (lambda: nn.AdaptiveAvgPool2d(7), (1, 8, 28, 28)),
    "mean": (lambda: lambda x: x.mean((2, 3)), (1, 8, 12, 12)),
    "mean, large": (lambda: lambda x: x.mean((2, 3)), (1, 4, 112, 112)),
    "mean of rows": (lambda: lambda x: x.mean(-1), (2, 5, 20)),
    "mean of a middle axis": (lambda: lambda x: x.mean(1), (2, 5, 20)),
    "mean of all": (lambda: lambda x: x.mean(), (2, 5, 20)),
    "mean of a number": (lambda: lambda x: x.mean(), ()),
    "mean of axes of one": (lambda: lambda x: x.mean((0, 2)), (1, 5, 1)),
    "sum": (lambda: lambda x: x.sum(-1, keepdim=True), (2, 5, 20)),
    "sum of channels": (lambda: lambda x: x.sum(1), (1, 8, 12, 12)),
    "mean of channels, large": (lambda: lambda x: x.mean(1, keepdim=True), (1, 3, 320, 320)),
    "sum of axes, large": (lambda: lambda x: x.sum((1, 2)), (1, 2, 3, 260, 260)),
    "largest": (lambda: lambda x: x.amax((2, 3)), (1, 8, 12, 12)),
    "largest of rows": (lambda: lambda x: x.tanh().amax(2).sigmoid(), (2, 2, 3, 3)),
    "smallest of rows": (lambda: lambda x: x.tanh().amin(2).sigmoid(), (2, 2, 5, 5)),
    "largest of columns": (lambda: lambda x: x.tanh().amax(-1).sigmoid(), (8, 2, 8, 2)),
    "largest of several axes": (lambda: lambda x: x.amax((0, 3), keepdim=True), (3, 1, 5, 8)),
    "largest of many samples": (lambda: lambda x: x.amax(1), (20, 6, 5)),
    "largest of all": (lambda: lambda x: x.amax(), (3, 5)),
    "smallest": (lambda: lambda x: x.amin(1, keepdim=True), (1, 8, 12, 12)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", POOLS)
def test_pools_and_reductions_are_as_in_eager(name: str, agrees: Any) -> None:
    make, shape = POOLS[name]
    agrees(make(), torch.randn(shape))


def test_averages_with_the_inputs_scale_are_the_npus_own(agrees: Any) -> None:
    # Averages of four are often half-way between two integers: these are rounded up.
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2))
    for delegated in agrees(model, torch.randn(1, 3, 12, 12), share=0.2).values():
        assert "AVG_POOL2D" in delegated.operators and delegated.operators.count("RESCALE") == 1


@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmax_is_within_a_step_of_eager(name: str, agrees: Any) -> None:
    function, shape, size = SOFTMAXES[name]
    agrees(function, torch.randn(shape) * size, share=0.1)
