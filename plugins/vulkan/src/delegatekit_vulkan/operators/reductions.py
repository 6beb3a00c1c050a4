"""Reductions that several families write: of the last axis, or in textures of one or two of the last three."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from delegatekit_toolkit.layout import inverse

from ..ir.graph import Argument, Tensor
from ..ir.stock import MEAN, SUM
from ..ir.types import TEXTURE_RANK, DataType
from ..targets import TARGETS
from .program import ProgramBuilder


def reduced(b: ProgramBuilder, operator: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    """A reduction along axes, which stay with size 1."""
    for group in _groups(b, x, [axis for axis in axes if x.shape[axis] != 1]):
        x = reduced_once(b, operator, x, group, group)
    return x


def _groups(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> list[tuple[int, ...]]:
    """The axes in parts that the runtime reduces at once: two of the last three in a texture, else each by itself."""
    near = [axis for axis in axes if axis >= x.rank - 3]
    far = [(axis,) for axis in axes if axis < x.rank - 3]
    if not _fits_texture(b, x):
        return [*((axis,) for axis in reversed(near)), *far]
    return [tuple(near[max(end - 2, 0) : end]) for end in range(len(near), 0, -2)] + far


#: Arguments after `keepdim`, with their defaults: the runtime looks for the result at the place after all of them.
_MORE: Final[dict[str, tuple[Argument, ...]]] = {MEAN: (None,), SUM: (None,)}


def _fits_texture(b: ProgramBuilder, x: Tensor) -> bool:
    if x.rank > TEXTURE_RANK:
        return False
    *outer, height, width = (1,) * (TEXTURE_RANK - x.rank) + x.sizes
    limits = TARGETS[b.options.target].texture
    return all(size <= most for size, most in zip((width, height, math.prod(outer)), limits, strict=True))


def reduced_once(
    b: ProgramBuilder,
    operator: str,
    x: Tensor,
    axes: tuple[int, ...],
    dims: Argument,
    datatype: DataType | None = None,
) -> Tensor:
    """One call. `dims` is how the operator wants one or two axes."""
    last = x.rank - 1
    direct = axes == (last,) or (_fits_texture(b, x) and axes[0] >= x.rank - 3)
    order = None
    if not direct:
        (axis,) = axes
        order = (*(other for other in range(x.rank) if other != axis), axis)
        x = b.call("aten.permute_copy.default", [x, order], [x.shape[at] for at in order])
        axes, dims = (last,), last if isinstance(dims, int) else (last,)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    made = b.call(operator, [x, dims, True, *_MORE.get(operator, ())], shape, datatype)
    if order is None:
        return made
    back = inverse(order)
    return b.call("aten.permute_copy.default", [made, back], [made.shape[at] for at in back])
