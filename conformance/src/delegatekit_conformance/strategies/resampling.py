"""Upsampling and grid sampling."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ..recipe import Recipe
from .registry import operator
from .sketch import FLOATS, Sketch
from .summands import summands

#: Exact in binary, so that a result's size is well determined.
#: The last ones give sizes that are multiples, whose neighbors do not repeat evenly.
_FACTORS = (2.0, 1.0, 3.0, 0.5, 1.5, 2.5, 0.75, 0.3125, 2.0625, 3.125)


def _well_determined(outputs: int, scale: Fraction, offset: Fraction) -> bool:
    """True if (i + offset) * scale, rounded down, is the same for any rounding on the way: none is nearly whole."""
    if scale.denominator & (scale.denominator - 1) == 0:
        return True  # exact in binary
    positions = ((i + offset) * scale for i in range(outputs))
    return all(position == 0 or position.denominator != 1 for position in positions)


def _sizes(
    sketch: Sketch, rank: int, offset: Fraction | None, *, long: bool
) -> tuple[list[int], list[int], list[float] | None]:
    """Sizes of input and output, and the factors if they were drawn; with `offset`, of nearest neighbors.

    With `long`, one axis has more elements than the others now and then.
    """
    sizes, outputs, factors = [], [], []
    by_factor = sketch.flag()
    same = sketch.choice(_FACTORS) if by_factor and not sketch.flag() else None
    longest = sketch.integer(0, rank - 1) if long and sketch.rarely(4) else None
    for axis in range(rank):
        size = sketch.integer(7, 19) if axis == longest else sketch.integer(1, 6 if rank < 3 else 4)
        most = 29 if axis == longest else 9 if rank < 3 else 5
        factor = same or sketch.choice(_FACTORS)
        output = math.floor(size * factor) if by_factor else sketch.integer(1, most)
        if output == 0:
            size, output = 4, math.floor(4 * factor)
        scale = 1 / Fraction(factor) if by_factor else Fraction(size, output)
        if offset is not None and not _well_determined(output, scale, offset):
            if by_factor:
                factor, output = 2.0, 2 * size
                same = same and 2.0
            else:
                output = 2 * size
        sizes.append(size)
        outputs.append(output)
        factors.append(factor)
    return sizes, outputs, factors if by_factor else None


def _upsample(sketch: Sketch, name: str, rank: int, *middle: Any, offset: Fraction | None = None) -> None:
    """Calls the operator: .vec takes sizes or factors, the plain form sizes and perhaps factors."""
    # Antialiased, a result sums as many elements as the factor of reduction.
    sizes, outputs, factors = _sizes(sketch, rank, offset, long=rank < 3 and "_aa" not in name)
    outer = (sketch.integer(1, 2), sketch.integer(1, 3))
    results = (*outer, *outputs)
    values = None if offset is not None else summands(sketch, results, weighted=True)
    x = sketch.tensor((*outer, *sizes), values=values)
    if name.endswith(".vec"):
        sketch.call(name, x, outputs if factors is None else None, *middle, factors)
    else:
        sketch.call(name, x, outputs, *middle, *(factors or []))


@operator(
    *(f"aten.upsample_nearest{rank}d.{overload}" for rank in (1, 2, 3) for overload in ("vec", "default")),
    dtypes=(*FLOATS, "uint8"),
)
def _nearest(sketch: Sketch, name: str) -> Recipe:
    _upsample(sketch, name, int(name.removeprefix("aten.upsample_nearest")[0]), offset=Fraction(0))
    return sketch.recipe(exact=True)


@operator(
    *(f"aten._upsample_nearest_exact{rank}d.{overload}" for rank in (1, 2, 3) for overload in ("vec", "default")),
    dtypes=(*FLOATS, "uint8"),
)
def _nearest_exact(sketch: Sketch, name: str) -> Recipe:
    _upsample(sketch, name, int(name.removeprefix("aten._upsample_nearest_exact")[0]), offset=Fraction(1, 2))
    return sketch.recipe(exact=True)


@operator(
    "aten.upsample_linear1d.vec",
    "aten.upsample_linear1d.default",
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_trilinear3d.vec",
    "aten.upsample_trilinear3d.default",
    dtypes=FLOATS,
)
def _linear(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.partition("linear")[2][0])
    _upsample(sketch, name, rank, sketch.flag())
    return sketch.recipe(reduction_length=2**rank, depth=4)


@operator("aten.upsample_bicubic2d.vec", "aten.upsample_bicubic2d.default", dtypes=FLOATS)
def _bicubic(sketch: Sketch, name: str) -> Recipe:
    _upsample(sketch, name, 2, sketch.flag())
    return sketch.recipe(reduction_length=16, depth=4)


@operator("aten._upsample_bilinear2d_aa.vec", "aten._upsample_bilinear2d_aa.default", dtypes=("float32",))
def _antialiased(sketch: Sketch, name: str) -> Recipe:
    _upsample(sketch, name, 2, sketch.flag())
    return sketch.recipe(reduction_length=36, depth=4)


@operator("aten.grid_sampler_2d.default", dtypes=FLOATS)
def _grid_sampler(sketch: Sketch, name: str) -> Recipe:
    count, channels = sketch.integer(1, 2), sketch.integer(1, 3)
    height, width, rows, columns = (sketch.integer(1, 5) for _ in range(4))
    mode, padding, align = sketch.choice((0, 1, 2)), sketch.choice((0, 1, 2)), sketch.flag()
    # Positions in pixels, also outside of the image; a quarter away from where the nearest pixel changes.
    positions = []
    for _ in range(count * rows * columns):
        for size in (width, height):
            position = sketch.integer(-2, size + 1) + sketch.choice((0.0, 0.25, -0.25))
            if align:
                positions.append(2 * position / (size - 1) - 1 if size > 1 else position / 2)
            else:
                positions.append((2 * position + 1) / size - 1)
    results = (count, channels, rows, columns)
    x = sketch.tensor((count, channels, height, width), values=summands(sketch, results, weighted=True))
    grid = sketch.tensor((count, rows, columns, 2), values=("literal", tuple(positions)), layouts=False)
    sketch.call(name, x, grid, mode, padding, align)
    # A position is accurate to a few roundings of the image's size.
    return sketch.recipe(reduction_length=16 if mode == 2 else 4, depth=6, exact=mode == 1)


@operator("aten.affine_grid_generator.default", dtypes=("float32",))
def _affine_grid(sketch: Sketch, name: str) -> Recipe:
    count = sketch.integer(1, 2)
    sizes = [sketch.integer(1, 4) for _ in range(sketch.choice((2, 3)))]
    # Of one sign and with a large shift, so that nothing cancels out.
    theta = sketch.tensor((count, len(sizes), len(sizes) + 1), values=("uniform", 0.5, 2.0))
    sketch.call(name, theta, [count, 3, *sizes], sketch.flag())
    return sketch.recipe(reduction_length=4, depth=3)
