"""Layouts: a tensor of the program as a stored value seen through an axis order, so that transposes need not run.

PyTorch's feature maps are NCHW, XNNPACK's are NHWC. A convolution's result is simply *stored* NHWC; an operator that
reads it requests the order that it needs, and only a difference costs a transpose. Permutations of the program only
change the order, reshapes pass through it if they keep stored neighbors together. This module applies that to tensors;
`delegatekit_toolkit.layout` has the algebra of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delegatekit_toolkit.layout import Order, inverse, permuted, regroupings

from .graph import Value
from .types import Shape


@dataclass(frozen=True)
class Tensor:
    """A tensor of the program: the stored value, permuted by `order`. Its axis i is axis order[i] of the value."""

    value: Value
    order: Order

    @classmethod
    def dense(cls, value: Value) -> Tensor:
        """The tensor whose logical axes are the stored ones."""
        return cls(value, tuple(range(len(value.shape))))

    @property
    def shape(self) -> Shape:
        """The logical shape."""
        return permuted(self.value.shape, self.order)

    def permuted(self, dims: Sequence[int]) -> Tensor:
        """Logical axis i of the result is logical axis dims[i] of this tensor."""
        return Tensor(self.value, tuple(self.order[dim] for dim in dims))


@dataclass(frozen=True)
class StoredReshape:
    """A reshape applied to the stored value: its new stored shape, and the order of the result."""

    shape: Shape
    order: Order


def reshape_through(tensor: Tensor, target: Shape) -> StoredReshape | None:
    """Reshape a tensor without transposing it first; None if the reshape joins axes that are stored apart.

    `target` has as many elements as the tensor. Both shapes are split into the smallest groups of neighboring axes with
    equal products, as (6, 4) -> (2, 3, 4) into 6 -> 2, 3 and 4 -> 4. If the old axes of each group are neighbors in
    memory, too, in the same sequence, the groups can be reshaped in place.
    """
    shape = tensor.shape
    ranks = _ranks_in_memory(tensor)
    placed: list[tuple[int, list[int]]] = []
    for old, new in regroupings(shape, target):
        positions = [ranks[tensor.order[axis]] for axis in old]
        if positions != list(range(positions[0], positions[0] + len(positions))):
            return None
        placed.append((positions[0], new))
    sequence = _with_unit_axes([axis for _, new in sorted(placed) for axis in new], target)
    return StoredReshape(tuple(target[axis] for axis in sequence), inverse(sequence))


def _ranks_in_memory(tensor: Tensor) -> dict[int, int]:
    """Stored axis -> its position among the stored axes that are longer than 1."""
    long = [axis for axis, size in enumerate(tensor.value.shape) if size != 1]
    return {axis: position for position, axis in enumerate(long)}


def _with_unit_axes(sequence: Sequence[int], shape: Shape) -> Sequence[int]:
    """Insert the axes of size 1 into a storage sequence of the longer ones.

    Leading ones come first, trailing ones after the last longer axis, the others before the next longer one: so (N, C,
    1, L) stored (N, L, C) becomes N, 1, L, C, the order for a one-dimensional convolution.
    """
    if not sequence:
        return range(len(shape))
    first, last = min(sequence), max(sequence)
    result = list(range(first))
    for axis in sequence:
        before = axis
        while before > first and shape[before - 1] == 1:
            before -= 1
        after = len(shape) if axis == last else axis + 1
        result.extend(range(before, after))
    return result
