"""Layouts: a tensor of the program as a stored value seen through an axis order, so that transposes need not run.

PyTorch's feature maps are NCHW, XNNPACK's are NHWC. A convolution's result is simply *stored* NHWC; whoever reads it
asks for the order that it needs, and only a difference costs a transpose. Permutations of the program only change
the order, reshapes pass through it where they keep stored neighbours together. This module is the algebra: axes in,
axes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delegatekit_toolkit.sizes import largest

from .graph import Shape, Value

#: Logical axis -> stored axis.
Order = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the program: its logical axis i is axis order[i] of the stored value."""

    value: Value
    order: Order

    @classmethod
    def dense(cls, value: Value) -> Tensor:
        """The tensor whose logical axes are the stored ones."""
        return cls(value, tuple(range(len(value.shape))))

    @property
    def shape(self) -> Shape:
        """The logical shape."""
        stored = self.value.shape
        return tuple(stored[axis] for axis in self.order)

    def permuted(self, dims: Sequence[int]) -> Tensor:
        """Logical axis i of the result is logical axis dims[i] of this tensor."""
        return Tensor(self.value, tuple(self.order[dim] for dim in dims))


def channels_last(rank: int) -> Order:
    """The order of a tensor (N, C, spatial...) that is stored (N, spatial..., C)."""
    return (0, rank - 1, *range(1, rank - 1))


def inverse(order: Sequence[int]) -> Order:
    """The permutation that undoes `order`."""
    result = [0] * len(order)
    for position, axis in enumerate(order):
        result[axis] = position
    return tuple(result)


def moves_elements(shape: Shape, permutation: Sequence[int]) -> bool:
    """Whether permuting axes of `shape` changes the order of elements in memory: axes of size 1 move for free."""
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved != sorted(moved)


@dataclass(frozen=True)
class StoredReshape:
    """How a reshape looks on the stored value: its new stored shape, and the order of the result."""

    shape: Shape
    order: Order


def reshape_through(tensor: Tensor, target: Shape) -> StoredReshape | None:
    """Reshape a tensor without transposing it first; None if the reshape joins axes that are stored apart.

    `target` has as many elements as the tensor. Both shapes are cut into the smallest groups of neighbouring axes
    with equal products, as (6, 4) -> (2, 3, 4) into 6 -> 2, 3 and 4 -> 4. If the old axes of each group are
    neighbours in memory too, in the same sequence, the groups can be reshaped where they are stored.
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


def regroupings(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes, those of size 1 left out, whose products agree. Both shapes have as many elements."""
    old_axes = [axis for axis, size in enumerate(old) if size != 1]
    new_axes = [axis for axis, size in enumerate(new) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old_axes):
        left, right = [old_axes[i]], [new_axes[j]]
        product, wanted = old[old_axes[i]], new[new_axes[j]]
        i, j = i + 1, j + 1
        while product != wanted:
            # Sizes that change may differ although they are equal in the largest call: then either side may grow.
            if j == len(new_axes) or (i < len(old_axes) and largest(product) <= largest(wanted)):
                left.append(old_axes[i])
                product *= old[old_axes[i]]
                i += 1
            else:
                right.append(new_axes[j])
                wanted *= new[new_axes[j]]
                j += 1
        groups.append((left, right))
    return groups


def _with_unit_axes(sequence: list[int], shape: Shape) -> list[int]:
    """Insert the axes of size 1 into a storage sequence of the longer ones.

    Leading ones come first, trailing ones behind the last longer axis, the others before the next longer one: so
    (N, C, 1, L) stored (N, L, C) becomes N, 1, L, C, what a one-dimensional convolution wants.
    """
    if not sequence:
        return list(range(len(shape)))
    first, last = min(sequence), max(sequence)
    result = list(range(first))
    for axis in sequence:
        before = axis
        while before > first and shape[before - 1] == 1:
            before -= 1
        after = len(shape) if axis == last else axis + 1
        result.extend(range(before, after))
    return result
