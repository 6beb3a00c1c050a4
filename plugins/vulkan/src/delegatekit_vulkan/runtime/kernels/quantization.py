"""Operators that quantize and dequantize numbers, and those that compute on such integers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ...ir.graph import Tensor
from ...ir.types import DataType
from ...shaders.numbers import Affine, Binary, Mapping, Reduce
from ...targets import LEAST_SCALE
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import viewed
from ..tape import Tape
from ..transfer import constant_array
from .affine import (
    RANGES,
    Blocks,
    affine,
    bounds_of,
    check_scales,
    fits,
    float_result,
    floats,
    integers,
    read_step,
    requantize,
)
from .elementwise import binary
from .reduction import Reduction, reduce
from .shape import shuffle_pixels

_MAPPINGS: Final = {
    "ASYMMETRIC": Mapping.ASYMMETRIC,
    "SYMMETRIC": Mapping.SYMMETRIC,
    "SYMMETRIC_NO_CLIPPING_ERR": Mapping.SYMMETRIC_TO_THE_ENDS,
}
#: The minimum scale that torchao chooses for float16 by default.
_LEAST_HALF_SCALE: Final = 2.0**-14


# -- one scale for all -------------------------------------------------------------------------------------------------


def _quantize_per_tensor(tape: Tape, call: Reader) -> None:
    value = floats(call, 0)
    target = tape.result(call.result, value.shape)
    bounds = bounds_of(call, 3, integers(call, target.datatype))
    affine(tape, Affine.QUANTIZE, value, target, read_step(call, 1, target.datatype), bounds)


def _dequantize_per_tensor(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    step = read_step(call, 1, value.datatype)
    affine(tape, Affine.DEQUANTIZE, value, float_result(tape, call, value.shape), step)


# -- scales of blocks --------------------------------------------------------------------------------------------------


def _dequantize_per_channel(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    integers(call, value.datatype)
    axis = call.axis(3, value.rank)
    shape = tuple(size if at == axis else 1 for at, size in enumerate(value.shape))
    blocks = _blocks(call, value, 1, value.shape, shape)
    affine(tape, Affine.DEQUANTIZE, value, float_result(tape, call, value.shape), blocks)


def _quantize_affine(tape: Tape, call: Reader) -> None:
    value = floats(call, 0)
    target = tape.result(call.result, value.shape)
    bounds = bounds_of(call, 5, integers(call, target.datatype))
    split = _split(call, value, 1)
    affine(tape, Affine.QUANTIZE, value, target, _blocks(call, target, 2, split.elements, split.blocks), bounds)


def _dequantize_affine(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    split = _split(call, value, 1)
    blocks = _blocks(call, value, 2, split.elements, split.blocks)
    affine(tape, Affine.DEQUANTIZE, value, float_result(tape, call, value.shape), blocks)


def _blocks(call: Reader, value: Value, position: int, elements: tuple[int, ...], shape: tuple[int, ...]) -> Blocks:
    """The scales at a position and the zero points after it, for blocks of integers of a value."""
    low, high = integers(call, value.datatype)
    scales, count = floats(call, position), math.prod(shape)
    zero_points = call.optional(position + 1)
    for found in (scales, zero_points):
        if found is not None and found.count != count and not (found.rank == 1 and fits(found.count, count)):
            raise call.error(f"has {found.count} scales or zero points for {count} blocks")
    if zero_points is not None and zero_points.is_float:
        raise call.error("has floating-point numbers as zero points")
    # Computed values are not known yet.
    if (known := call.declared(position).data) is not None:
        check_scales(call, constant_array(known).reshape(-1)[:count])
    if zero_points is not None and (known := call.declared(position + 1).data) is not None:
        given = constant_array(known).reshape(-1)[:count]
        if given.size and not (low <= given.min() and given.max() <= high):
            raise call.error(f"has zero points from {given.min()} to {given.max()} for {value.datatype.name}")
    return Blocks(scales, zero_points, elements, shape)


@dataclass(frozen=True)
class _Split:
    """Elements in blocks: axes that have several blocks of several elements are two axes."""

    elements: tuple[int, ...]
    #: Axes within a block.
    inner: tuple[int, ...]

    @property
    def blocks(self) -> tuple[int, ...]:
        """The number of blocks along each axis."""
        return tuple(1 if axis in self.inner else size for axis, size in enumerate(self.elements))


def _split(call: Reader, value: Value, position: int) -> _Split:
    sizes = call.integers(position)
    if len(sizes) != value.rank or any(
        block < 1 or size % block for size, block in zip(value.shape, sizes, strict=False)
    ):
        raise call.error(f"has blocks of {sizes} in {value.shape}")
    elements: list[int] = []
    inner: list[int] = []
    for size, block in zip(value.shape, sizes, strict=True):
        if block not in (1, size):
            elements.append(size // block)
        if block > 1:
            inner.append(len(elements))
        elements.append(block if block > 1 else size)
    return _Split(tuple(elements), tuple(inner))


def _choose_qparams(tape: Tape, call: Reader) -> None:
    value = floats(call, 0)
    mapping = _mapping(call)
    low, high = _chosen_bounds(call, mapping)
    split = _split(call, value, 2)
    shape = _shape_of_blocks(call, value, split)
    if len(call.results) != 2:
        raise call.error(f"has {len(call.results)} results: a scale and a zero point are computed")
    scales, zero_points = (tape.result(result, shape) for result in call.results)
    if not scales.is_float or zero_points.is_float:
        raise call.error("has a scale or a zero point of the wrong kind")
    seen = viewed(value, split.elements)
    axes = split.inner or tuple(range(len(split.elements)))
    least, largest = tape.scratch(shape), tape.scratch(shape)
    reduce(tape, Reduction(Reduce.MIN), seen, least, axes)
    reduce(tape, Reduction(Reduce.MAX), seen, largest, axes)
    default = _LEAST_HALF_SCALE if value.is_half else LEAST_SCALE
    middle = math.trunc((low + high + 1) / 2)
    push = (scales.count, float(low), float(high), _least_scale(call, default), float(middle))
    buffers = (least, largest, scales, zero_points)
    tape.dispatch("qparams", buffers, push, (scales.is_half, mapping), items=scales.count, written=2)


def _mapping(call: Reader) -> Mapping:
    found = call.raw(1)
    if not isinstance(found, str) or found not in _MAPPINGS:
        raise call.error(f"has the mapping {found!r:.40}")
    return _MAPPINGS[found]


def _chosen_bounds(call: Reader, mapping: Mapping) -> tuple[int, int]:
    """The integers. Their type is not in the file: without bounds they are those of int8."""
    low, high = call.number(4, -128.0), call.number(5, 127.0)
    least, largest = RANGES[DataType.UINT8 if low >= 0 else DataType.INT8]
    if not (low.is_integer() and high.is_integer() and least <= low < high <= largest):
        raise call.error(f"has integers from {low} to {high}")
    if mapping == Mapping.SYMMETRIC_TO_THE_ENDS and not low < 0 < high:
        raise call.error(f"has integers from {low} to {high}, which are not on both sides of 0")
    return int(low), int(high)


def _least_scale(call: Reader, default: float) -> float:
    found = call.number(6, default)
    if not 0 <= found <= 1 / LEAST_SCALE:
        raise call.error(f"has the least scale {found}")
    return max(found, LEAST_SCALE)


def _shape_of_blocks(call: Reader, value: Value, split: _Split) -> tuple[int, ...]:
    """One number for each block: with all axes of the value, or without those within a block."""
    if not value.count:
        raise call.error(f"chooses scales for {value.shape}, which has no elements")
    if not call.truth(9):
        # PyTorch reduces all axes if no axes are given.
        return tuple(size for axis, size in enumerate(split.elements) if split.inner and axis not in split.inner)
    if not split.inner and value.count > 1:
        raise call.error(f"chooses a scale for each element of {value.shape}")
    return tuple(size // block for size, block in zip(value.shape, call.integers(2), strict=True))


# -- integers alone ----------------------------------------------------------------------------------------------------


def _add(tape: Tape, call: Reader) -> None:
    left, right = call.tensor(0), call.tensor(1)
    if left.shape != right.shape:
        raise call.error(
            f"adds integers of the sizes {left.shape} and {right.shape}: ExecuTorch's runtime takes equal ones"
        )
    target = tape.result(call.result, left.shape)
    step = read_step(call, 6, target.datatype)
    total = tape.scratch(left.shape)
    binary(tape, Binary.ADD, _numbers(tape, call, left, 2), _numbers(tape, call, right, 4), total, call.number(8))
    affine(tape, Affine.QUANTIZE, total, target, step, integers(call, target.datatype))


def _numbers(tape: Tape, call: Reader, value: Value, position: int) -> Value:
    """The numbers of integers, by the step at a position."""
    made = tape.scratch(value.shape)
    affine(tape, Affine.DEQUANTIZE, value, made, read_step(call, position, value.datatype))
    return made


def _relu(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    target = tape.result(call.result, value.shape)
    requantize(
        tape,
        value,
        target,
        read_step(call, 1, value.datatype),
        read_step(call, 3, target.datatype),
        integers(call, target.datatype),
        relu=True,
    )


def _pixel_shuffle(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    step = read_step(call, 3, value.datatype, inverted=True)
    if not isinstance(call.result, Tensor) or call.result.datatype is not value.datatype:
        raise call.error(f"shuffles {value.datatype.name} to another type")
    made = tape.scratch(value.shape, value.datatype)
    requantize(tape, value, made, read_step(call, 1, value.datatype), step, integers(call, value.datatype))
    shuffle_pixels(tape, call, made, call.integer(5))


KERNELS: Final[dict[str, Kernel]] = {
    "quantized_decomposed.quantize_per_tensor.default": _quantize_per_tensor,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantize_per_tensor,
    "quantized_decomposed.dequantize_per_channel.default": _dequantize_per_channel,
    "torchao.choose_qparams_affine.default": _choose_qparams,
    "torchao.quantize_affine.default": _quantize_affine,
    "torchao.dequantize_affine.default": _dequantize_affine,
    "et_vk.q8ta_add.default": _add,
    "et_vk.q8ta_relu.default": _relu,
    "et_vk.q8ta_pixel_shuffle.default": _pixel_shuffle,
}
