"""Axes joined without a reshape: for programs that join sizes that change, and split them again later.

PyTorch's attention reshapes (length, batch, features) to (length, batch * heads, width) only to permute it and reshape
it to (batch, heads, length, width). XNNPACK's reshape infers one size and could not go back; but nothing reads the
intermediate tensors. Such a tensor is kept as its parts: each of its axes is a group of axes of another tensor. Views
and permutations change the groups, products with a matrix pass them on, and other operators get a reshape.

This module has the algebra of the groups; `operators.groups` applies it to the calls of a program. `Axes` are the sizes
of the parts of each axis, slowest first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from delegatekit_toolkit.sizes import Size, dynamic_count

from .builder import regrouping_obstacle
from .layout import Tensor
from .types import Shape

Axes = tuple[Shape, ...]


@dataclass(frozen=True)
class Joined:
    """A tensor whose axis i is the next `counts[i]` logical axes of `parts`."""

    parts: Tensor
    counts: tuple[int, ...]

    @property
    def axes(self) -> Axes:
        """The sizes of the parts of each axis."""
        sizes = iter(self.parts.shape)
        return tuple(tuple(next(sizes) for _ in range(count)) for count in self.counts)

    @property
    def shape(self) -> Shape:
        """The logical shape."""
        return joined_shape(self.axes)

    def simplified(self) -> Tensor | Joined:
        """The parts, if each axis is one."""
        return self.parts if set(self.counts) <= {1} else self

    def permuted(self, dims: Sequence[int]) -> Joined:
        """Axis i of the result is axis dims[i] of this tensor."""
        starts = [sum(self.counts[:axis]) for axis in range(len(self.counts))]
        order = [part for dim in dims for part in range(starts[dim], starts[dim] + self.counts[dim])]
        return Joined(self.parts.permuted(order), tuple(self.counts[dim] for dim in dims))


def plain(shape: Shape) -> Axes:
    """Axes that consist of a single part each."""
    return tuple((size,) for size in shape)


def parts_of(axes: Axes) -> Shape:
    """The shape of the parts."""
    return tuple(chain.from_iterable(axes))


def joined_shape(axes: Axes) -> Shape:
    """The shape that the groups represent."""
    return tuple(map(math.prod, axes))


def viewed(axes: Axes, target: Shape) -> Axes | None:
    """The axes under another shape, with parts that can be computed from the present ones; None if there are none.

    Only if several sizes change: otherwise a reshape suffices.
    """
    parts = parts_of(axes)
    if dynamic_count(parts) < 2:
        return None
    found = _refined(parts, target)
    if found is None:
        return None
    return found if regrouping_obstacle(parts, parts_of(found)) is None else None


def _refined(parts: Shape, target: Shape) -> Axes | None:
    """`target`, of as many elements, in factors in the order of `parts`, some of these split."""
    left = [size for size in parts if size != 1]
    result: list[Shape] = []
    for size in target:
        rest: Size = size
        group: list[Size] = []
        while rest != 1:
            part = left.pop(0)
            if rest % part == 0:
                group.append(part)
                rest = rest // part
            elif part % rest == 0:
                group.append(rest)
                left.insert(0, part // rest)
                rest = 1
            else:
                return None
        result.append(tuple(group) or (1,))
    return tuple(result)


def is_reshaped(axes: Axes) -> bool:
    """True if a reshape can compute the tensor from its parts."""
    parts, shape = parts_of(axes), joined_shape(axes)
    return dynamic_count(shape) < 2 or regrouping_obstacle(parts, shape) is None


def with_last_joined(axes: Axes) -> Axes | None:
    """The axes with the last one as a single part; None if it cannot be joined."""
    result = (*axes[:-1], (math.prod(axes[-1]),))
    return result if regrouping_obstacle(parts_of(axes), parts_of(result)) is None else None


def reshape_obstacle(shape: Shape, target: Shape) -> str | None:
    """The reason why a reshape is impossible; None if it is possible."""
    obstacle = None if dynamic_count(target) < 2 else regrouping_obstacle(shape, target)
    return None if obstacle is None else f"{shape} to {target}: XNNPACK infers one size only ({obstacle})"
