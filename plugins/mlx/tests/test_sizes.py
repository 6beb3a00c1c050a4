"""Sizes that change from call to call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from delegatekit_api import ExecutionError
from delegatekit_conformance import testkit

_N = torch.export.Dim("n", min=3, max=16)


@pytest.mark.parametrize(
    ("model", "shape", "changing", "sizes"),
    [
        (torch.nn.Linear(4, 3), (5, 4), 0, (3, 7, 16)),
        (lambda x: (x.reshape(x.shape[0] * 2, 2) * 2).reshape(2, -1), (5, 4), 0, (3, 7, 16)),
        (lambda x: x.sum(0) / x.shape[0] + x, (5, 4), 0, (3, 7, 16)),
        (lambda x: torch.cat([x, x * 2])[: x.shape[0] + 1] + 1, (5, 4), 0, (3, 7, 16)),
        (torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8), 1, (3, 7, 16)),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(2)), (5, 3, 8, 8), 0, (3, 7, 16)),
        (torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3, padding=1), torch.nn.Conv1d(4, 2, 2)), (2, 3, 8), 2, (5, 9)),
        (lambda x: torch.sort(x, 0, descending=True)[0].flip(0), (5, 4), 0, (3, 7, 16)),
    ],
)
def test_results_have_the_sizes_of_the_call(
    model: Any, shape: tuple[int, ...], changing: int, sizes: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    dynamic: Any = {changing: _N}
    shapes = (dynamic,) if isinstance(model, torch.nn.Module) else ((dynamic,),)
    lowered = testkit.lower(model, torch.randn(shape), backend="mlx", dynamic_shapes=shapes)
    calls = [(torch.randn(*shape[:changing], size, *shape[changing + 1 :]),) for size in sizes]
    testkit.compare(lowered, *calls, tolerance=1e-5)


def test_sizes_that_must_be_equal_are_checked() -> None:
    """MLX would broadcast a size of 1."""
    pair = (torch.randn(5, 4), torch.randn(5, 4))
    lowered = testkit.lower(torch.add, *pair, backend="mlx", dynamic_shapes=(({0: _N}, {0: _N}),))
    with pytest.raises(ExecutionError):
        lowered.run(torch.randn(5, 4), torch.randn(1, 4))
