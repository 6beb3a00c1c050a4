"""Joined axes: the groups from views and permutations, compared with PyTorch's tensors."""

from __future__ import annotations

import pytest
import torch

from delegatekit_toolkit.sizes import Dynamic
from delegatekit_xnnpack.ir.graph import Value
from delegatekit_xnnpack.ir.joined import Joined, is_reshaped, joined_shape, parts_of, plain, viewed, with_last_joined
from delegatekit_xnnpack.ir.layout import Tensor

B, T = Dynamic((4, 1, 2)), Dynamic((7, 1, 5))


@pytest.mark.parametrize(
    ("parts", "target", "axes"),
    [
        ((T, B, 6), (T, 2 * B, 3), ((T,), (B, 2), (3,))),
        ((T, B, 2, 3), (T * B, 6), ((T, B), (2, 3))),
        ((T, B, 6), (T * B * 6,), ((T, B, 6),)),
        ((T, B, 6), (T, B, 1, 2, 3), ((T,), (B,), (1,), (2,), (3,))),
        ((T, B, 1, 6), (1, T * B, 6), ((1,), (T, B), (6,))),
        ((B, 2, T, 3), (2 * B, T, 3), ((B, 2), (T,), (3,))),
    ],
)
def test_a_view_groups_the_parts(parts, target, axes):
    assert viewed(plain(parts), target) == axes
    assert joined_shape(axes) == target


@pytest.mark.parametrize(
    ("parts", "target"),
    [
        ((2 * B, T, 3), (B, 2, T, 3)),  # a size that changes would be split
        ((T, B), (B, T)),
        ((T, B, 160), (T, B * 80, 2)),  # too many parts
        ((6, B), (2, 3 * B)),  # one size that changes: a reshape does it
    ],
)
def test_other_views_have_no_groups(parts, target):
    assert viewed(plain(parts), target) is None


def test_views_and_permutations_of_groups_read_what_pytorch_reads():
    """The reshapes of attention: (T, B, E) to (T, B*h, d), permuted, to (B, h, T, d)."""
    stored = (T, B, 2, 3)
    tensor = Joined(Tensor.dense(Value(stored)), (1, 2, 1))
    assert tensor.shape == (T, 2 * B, 3)
    permuted = tensor.permuted((1, 0, 2))
    assert permuted.axes == ((B, 2), (T,), (3,))
    axes = viewed(permuted.axes, (B, 2, T, 3))
    assert axes == plain((B, 2, T, 3))
    data = torch.arange(5 * 2 * 6.0).reshape(5, 2, 2, 3)
    wanted = data.reshape(5, 4, 3).permute(1, 0, 2).reshape(2, 2, 5, 3)
    assert torch.equal(data.permute(permuted.parts.order), wanted)


def test_groups_of_one_are_the_parts():
    parts = Tensor.dense(Value((T, B, 3)))
    assert Joined(parts, (1, 1, 1)).simplified() is parts
    joined = Joined(parts, (2, 1))
    assert joined.simplified() is joined


def test_what_a_reshape_can_make_of_groups():
    assert is_reshaped(((T, B), (6,)))
    assert is_reshaped(((T,), (B,), (2, 3)))
    assert not is_reshaped(((T,), (B, 2), (3,)))


def test_rows_of_a_linear_layer():
    assert with_last_joined(((T, B), (2, 3))) == ((T, B), (6,))
    assert with_last_joined(((T,), (B, 2))) is None
    assert parts_of(((T, B), (6,))) == (T, B, 6)
