"""Average and maximum pooling, with windows and adaptive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..recipe import Recipe, Ref, Values
from .registry import operator
from .sketch import FLOATS, Sketch
from .summands import batch, per_dim, summands, written


@dataclass(frozen=True)
class _Windows:
    """Sizes of one pooling, per spatial dimension."""

    sizes: list[int]
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil_mode: bool

    def results(self, dim: int) -> int:
        """The number of windows along a dimension."""
        extent = self.dilation[dim] * (self.kernel[dim] - 1) + 1
        room = self.sizes[dim] + 2 * self.padding[dim] - extent
        count = -(-room // self.stride[dim]) if self.ceil_mode else room // self.stride[dim]
        # The last window must begin within the input or the padding before it.
        return count + (count * self.stride[dim] < self.sizes[dim] + self.padding[dim])

    def see_something(self, dim: int) -> bool:
        """True if each window holds an element of the input: the maximum of none is not defined."""
        size, step = self.sizes[dim], self.dilation[dim]
        starts = (window * self.stride[dim] - self.padding[dim] for window in range(self.results(dim)))
        return all(any(0 <= start + tap * step < size for tap in range(self.kernel[dim])) for start in starts)


def _windows(sketch: Sketch, rank: int, *, dilated: bool) -> _Windows:
    kernel = per_dim(sketch, rank, 1, 4 if rank == 1 else 3)
    # Without a stride, the kernel's size is taken.
    stride = per_dim(sketch, rank, 1, 3) if not sketch.rarely(4) else list(kernel)
    dilation = per_dim(sketch, rank, 1, 2) if dilated else [1] * rank
    # A pool's padding is at most half its kernel.
    padding = [sketch.integer(0, taps // 2) for taps in kernel]
    extents = [step * (taps - 1) + 1 for step, taps in zip(dilation, kernel, strict=True)]
    sizes = [
        max(1, extent - 2 * pad) + sketch.integer(0, 5 if rank < 3 else 2)
        for extent, pad in zip(extents, padding, strict=True)
    ]
    windows = _Windows(sizes, kernel, stride, padding, dilation, sketch.flag())
    for dim in range(rank):
        while not windows.see_something(dim):
            sizes[dim] += 1
    return windows


def _shape(sketch: Sketch, sizes: list[int]) -> tuple[int, ...]:
    return (*batch(sketch), sketch.integer(1, 3), *sizes)


def _arguments(sketch: Sketch, windows: _Windows) -> list[Any]:
    stride: list[int] = written(sketch, windows.stride)
    if windows.stride == windows.kernel and sketch.flag():
        stride = []
    return [written(sketch, windows.kernel), stride, written(sketch, windows.padding)]


@operator("aten.avg_pool3d.default", dtypes=("float32", "int64"))  # eager has no other
@operator("aten.avg_pool1d.default", "aten.avg_pool2d.default", dtypes=(*FLOATS, "int64"))
def _avg_pool(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.removeprefix("aten.avg_pool")[0])
    windows = _windows(sketch, rank, dilated=False)
    if rank == 3:  # eager requires the kernel to fit into the input without its padding
        windows.sizes[:] = map(max, windows.sizes, windows.kernel)
    shape = _shape(sketch, windows.sizes)
    results = [*shape[:-rank], *map(windows.results, range(rank))]
    x = sketch.tensor(shape, values=summands(sketch, results, weighted=True))
    arguments = _arguments(sketch, windows)
    arguments += [windows.ceil_mode, sketch.flag()]
    if rank > 1 and sketch.rarely(3):
        # A number of its own, or that of the places in a window: a backend may divide by the latter alone.
        arguments.append(sketch.choice((1, 2, 5, math.prod(windows.kernel))))
    if not windows.ceil_mode and sketch.rarely(4):
        del arguments[3:]
        if not any(windows.padding):
            del arguments[2:]
    sketch.call(name, x, *arguments)
    return sketch.recipe(reduction_length=math.prod(windows.kernel))


#: Possible values where maxima are computed without their indices.
_EQUALS: tuple[Values, ...] = (("special",), ("integers", 0, 3))


def _max_values(sketch: Sketch, shape: Sequence[int]) -> Values:
    """The kind of numbers for a maximum. NaN is larger than all others."""
    if math.prod(shape) > 256 and sketch.dtype in ("int8", "uint8"):
        return _EQUALS[1]  # there are no more different numbers
    return sketch.choice((("distinct",), ("distinct",), *_EQUALS[0 if sketch.is_float else 1 :]))


def _maximum(sketch: Sketch, result: Ref, values: Values, *, indices: bool) -> Recipe:
    if not indices:
        return sketch.recipe(exact=True)
    first, second = Ref(result.name, 0), Ref(result.name, 1)
    if values in _EQUALS:  # which of them is taken is unspecified
        return sketch.recipe(first, exact=True)
    return sketch.recipe(*sketch.choice(((first, second), (first,), (second,))), exact=True)


@operator("aten.max_pool1d.default", "aten.max_pool1d_with_indices.default", dtypes=FLOATS)
@operator(
    "aten.max_pool2d.default",
    "aten.max_pool3d.default",
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool3d_with_indices.default",
    dtypes=(*FLOATS, "int64", "int8", "uint8"),
)
def _max_pool(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.removeprefix("aten.max_pool")[0])
    windows = _windows(sketch, rank, dilated=True)
    shape = _shape(sketch, windows.sizes)
    values = _max_values(sketch, shape)
    # Eager's memory format of rank 4 is not one of three dimensions without a batch.
    x = sketch.tensor(shape, values=values, layouts=len(shape) != 4 or rank != 3)
    arguments = [*_arguments(sketch, windows), written(sketch, windows.dilation), windows.ceil_mode]
    if not windows.ceil_mode and sketch.rarely(4):
        arguments.pop()
        if set(windows.dilation) == {1}:
            arguments.pop()
    return _maximum(sketch, sketch.call(name, x, *arguments), values, indices="_with_indices" in name)


@operator(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
    dtypes=FLOATS,
)
def _adaptive_avg_pool(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.partition("_pool")[2][0])
    shape, outputs = _adaptive(sketch, rank)
    x = sketch.tensor(shape, values=summands(sketch, (*shape[:-rank], *outputs), weighted=True))
    sketch.call(name, x, outputs)
    lengths = (-(-size // output) + 1 for size, output in zip(shape[-rank:], outputs, strict=True))
    return sketch.recipe(reduction_length=math.prod(lengths))


def _adaptive(sketch: Sketch, rank: int) -> tuple[tuple[int, ...], list[int]]:
    """The input's shape and the output's sizes: 1, the input's own, divisors of it, others and larger ones."""
    shape = _shape(sketch, per_dim(sketch, rank, 1, 8 if rank < 3 else 4))
    outputs = []
    for size in shape[-rank:]:
        divisors = [part for part in range(1, size + 1) if size % part == 0]
        outputs.append(sketch.choice(divisors) if not sketch.rarely(3) else sketch.integer(1, 6 if rank < 3 else 3))
    return shape, outputs


@operator(
    "aten.adaptive_max_pool1d.default",
    "aten.adaptive_max_pool2d.default",
    "aten.adaptive_max_pool3d.default",
    dtypes=FLOATS,
)
def _adaptive_max_pool(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.partition("_pool")[2][0])
    shape, outputs = _adaptive(sketch, rank)
    values = _max_values(sketch, shape)
    x = sketch.tensor(shape, values=values, layouts=len(shape) != 4 or rank != 3)
    result = sketch.call(name, x, outputs)
    return _maximum(sketch, result, values, indices=True)
