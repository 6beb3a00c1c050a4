"""Reshapes of values stored in another order, compared with PyTorch's strides."""

from __future__ import annotations

import itertools

import pytest
import torch

from delegatekit_toolkit.layout import to_channels_first
from delegatekit_xnnpack.ir.graph import Value
from delegatekit_xnnpack.ir.layout import Tensor, reshape_through

TARGETS = [
    (24,),
    (2, 12),
    (6, 4),
    (2, 3, 4),
    (4, 3, 2),
    (2, 3, 2, 2),
    (1, 24),
    (2, 1, 3, 4, 1),
    (8, 3),
    (1, 6, 1, 4, 1),
    (3, 8),
]


@pytest.mark.parametrize("target", TARGETS)
def test_a_reshape_through_the_storage_reads_the_same_elements(target):
    taken = 0
    for stored_shape in [(2, 3, 4), (1, 2, 3, 4), (2, 1, 3, 4, 1)]:
        stored = torch.arange(24).reshape(stored_shape)
        for order in itertools.permutations(range(len(stored_shape))):
            tensor = Tensor(Value(stored_shape), order)
            logical = stored.permute(order)
            assert tensor.shape == tuple(logical.shape)
            through = reshape_through(tensor, target)
            if through is not None:
                taken += 1
                result = stored.reshape(through.shape).permute(through.order)
                assert torch.equal(result, logical.reshape(target))
    assert taken > 0


@pytest.mark.parametrize("target", TARGETS)
def test_a_reshape_is_refused_only_if_pytorch_would_copy(target):
    for order in itertools.permutations(range(3)):
        stored = torch.arange(24).reshape(2, 3, 4)
        through = reshape_through(Tensor(Value((2, 3, 4)), order), target)
        try:
            stored.permute(order).view(target)
        except RuntimeError:
            assert through is None
        else:
            assert through is not None


def test_unit_axes_go_where_a_one_dimensional_convolution_wants_them():
    tensor = Tensor(Value((2, 7, 5)), (0, 2, 1))  # (N, C, L) stored (N, L, C)
    through = reshape_through(tensor, (2, 5, 1, 7))
    assert through is not None
    assert through.shape == (2, 1, 7, 5)
    assert through.order == to_channels_first(4)
