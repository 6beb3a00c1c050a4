"""Roundings that lead to a result, counted in the exported graph."""

from __future__ import annotations

import torch
from torch.export import Dim

from delegatekit_toolkit.accuracy import estimate


class Shares(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)


def test_a_size_without_an_upper_bound_counts_as_in_the_example() -> None:
    def accuracy(dim: Dim) -> object:
        return estimate(torch.export.export(Shares(), (torch.zeros(2, 4),), dynamic_shapes=({1: dim},), strict=False))

    assert accuracy(Dim("columns", min=1)) == accuracy(Dim("columns", min=1, max=4))
