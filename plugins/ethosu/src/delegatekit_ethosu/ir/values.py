"""How a tensor of the program lies in memory: its axes in some order, so that permutations need not move anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from delegatekit_toolkit.tosa import Tensor

#: (N, C, H, W) stored as (N, H, W, C), and (N, C, L) as (N, L, C).
CHANNELS_LAST: Final = (0, 2, 3, 1)
ROWS_OF_CHANNELS: Final = (0, 2, 1)


@dataclass(frozen=True, eq=False)
class Value:
    """A TOSA tensor whose axis i is axis `order[i]` of the program's tensor."""

    tensor: Tensor
    order: tuple[int, ...]

    @classmethod
    def dense(cls, tensor: Tensor) -> Value:
        """A tensor stored as the program has it."""
        return cls(tensor, tuple(range(len(tensor.shape))))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the program sees."""
        sizes = [0] * len(self.order)
        for axis, size in zip(self.order, self.tensor.shape, strict=True):
            sizes[axis] = size
        return tuple(sizes)

    def permuted(self, dims: Sequence[int]) -> Value:
        """The program's tensor with its axes in the order `dims`; nothing moves."""
        place = {axis: new for new, axis in enumerate(dims)}
        return Value(self.tensor, tuple(place[axis] for axis in self.order))

    def stored_axis(self, axis: int) -> int:
        """Where the program's axis lies."""
        return self.order.index(axis)


def moves_elements(shape: Sequence[int], perms: Sequence[int]) -> bool:
    """Whether a permutation changes the order of a tensor's elements: axes of size 1 do not count."""
    moved = [axis for axis in perms if shape[axis] != 1]
    return moved != sorted(moved)


def merged(shape: Sequence[int], perms: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The permutation with axes that stay neighbours as one, and without those of size 1: the shape, and the axes."""
    kept = [axis for axis in perms if shape[axis] != 1]
    groups: list[list[int]] = []
    for axis in kept:
        between = range(groups[-1][-1] + 1, axis) if groups else range(0)
        if groups and axis > groups[-1][-1] and all(shape[item] == 1 for item in between):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(range(len(groups)), key=lambda place: groups[place][0])
    sizes = []
    for place in order:
        size = 1
        for axis in groups[place]:
            size *= shape[axis]
        sizes.append(size)
    return tuple(sizes), tuple(order.index(place) for place in range(len(groups)))


def composed(
    shape: Sequence[int], first: Sequence[int], middle: Sequence[int], second: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """A permutation, and another of its result in shape `middle`, as one: `merged`. None if axes are cut unevenly."""
    ends = [_ends(item) for item in ([shape[axis] for axis in first], middle)]
    cuts = sorted({*ends[0], *ends[1], 1}, reverse=True)
    if any(large % small for large, small in pairwise(cuts)):
        return None
    pieces = [large // small for large, small in pairwise(cuts)]
    # The pieces of each axis of the first result, and of the second's input.
    made, read = ([[*range(cuts.index(start), cuts.index(end))] for start, end in pairwise(item)] for item in ends)
    source = [piece for axis in range(len(shape)) for piece in made[list(first).index(axis)]]
    result = [piece for axis in second for piece in read[axis]]
    return merged([pieces[piece] for piece in source], [source.index(piece) for piece in result])


def _ends(shape: Sequence[int]) -> list[int]:
    """Elements from the start of each axis to the end of the tensor, and from its end."""
    ends = [1]
    for size in reversed(shape):
        ends.append(ends[-1] * size)
    return ends[::-1]


def blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Cuts a reshape into the smallest groups of neighbouring axes that become groups of axes with as many elements."""
    found: list[tuple[list[int], list[int]]] = []
    old, new = 0, 0
    while old < len(before) or new < len(after):
        left, right = [], []
        sizes = [1, 1]
        if old < len(before):
            left, sizes[0], old = [old], before[old], old + 1
        if new < len(after):
            right, sizes[1], new = [new], after[new], new + 1
        while sizes[0] != sizes[1]:
            if sizes[0] < sizes[1]:
                left, sizes[0], old = [*left, old], sizes[0] * before[old], old + 1
            else:
                right, sizes[1], new = [*right, new], sizes[1] * after[new], new + 1
        found.append((left, right))
    return found
