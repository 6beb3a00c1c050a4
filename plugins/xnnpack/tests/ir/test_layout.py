"""The axis algebra, checked against what PyTorch's strides say."""

from __future__ import annotations

import itertools

import pytest
import torch

from delegatekit_xnnpack.ir.graph import Value
from delegatekit_xnnpack.ir.layout import Tensor, channels_last, inverse, moves_elements, reshape_through

SHAPES = [(2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (2, 2, 3, 4), (1, 1, 5), (6, 1, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_moving_elements_is_what_contiguity_says(shape):
    x = torch.arange(torch.Size(shape).numel()).reshape(shape)
    for order in itertools.permutations(range(len(shape))):
        assert moves_elements(shape, order) == (not torch.equal(x.permute(order).reshape(-1), x.reshape(-1)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 0, 1), (3, 1, 0, 2)])
def test_the_inverse_undoes_a_permutation(order):
    x = torch.arange(24.0).reshape((2, 12) if len(order) == 2 else (2, 3, 4) if len(order) == 3 else (2, 3, 4, 1))
    assert torch.equal(x.permute(order).permute(inverse(order)), x)


def test_channels_last_is_pytorchs():
    x = torch.randn(2, 3, 4, 5)
    stored = x.permute(0, 2, 3, 1)
    assert stored.permute(channels_last(4)).shape == x.shape


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
    assert through.order == channels_last(4)
