"""Products with constant matrices of small integers, which stay packed in the device's memory; and their embeddings."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from ...ir.graph import Tensor
from ...ir.types import DataType
from ...shaders.numbers import Affine
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import viewed
from ..tape import Packing, Tape
from .affine import (
    Blocks,
    Sums,
    activation,
    affine,
    bias_of,
    check_sums,
    factors_of,
    fits,
    float_result,
    floats,
    integers,
    read_step,
    requantize,
    scales_of,
    whole_numbers,
)
from .products import BLOCK, Bias, Matrices, PackedMatrix, column_parts, multiply

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class _Weight:
    """A constant matrix of integers (columns, inner) with scales: the product is with its transpose."""

    tensor: Tensor
    columns: int
    inner: int
    #: Of an integer: 8 or 4.
    bits: int
    #: Returns some columns of the file's matrix as int8; `form` names it.
    unpack: Packing
    form: Hashable
    scales: Tensor
    #: Returns the scales of the file as (groups, columns or more).
    order: Packing
    #: Elements along `inner` that share a scale.
    group: int

    def parts(self, tape: Tape) -> list[tuple[int, int, PackedMatrix]]:
        """First column, number of columns, and matrix of each part for one dispatch."""
        return [self._part(tape, *part) for part in column_parts(self.columns, self.inner * self.bits // 8)]

    def _part(self, tape: Tape, first: int, count: int) -> tuple[int, int, PackedMatrix]:
        blocks, fours = -(-count // BLOCK), -(-self.inner // 4)
        width = blocks * BLOCK
        groups = -(-self.inner // self.group)

        def pack(elements: Array) -> Array:
            return _packed(self.unpack(elements[first : first + count])[:, : self.inner], self.bits)

        def pack_scales(elements: Array) -> Array:
            made = np.zeros((groups, width), np.float32)
            made[:, :count] = self.order(elements)[:groups, first : first + count]
            return made

        form = (self.form, self.inner, first, count)
        words = tape.constant(self.tensor, (fours * blocks * self.bits,), form, pack)
        scales = tape.constant(self.scales, (groups * width,), (*form, groups), pack_scales)
        return first, count, PackedMatrix(words, width, bits=self.bits, scales=scales, fours=-(-self.group // 4))


def _packed(values: Array, bits: int) -> Array:
    """A matrix (columns, inner) in the order of shaders/matmul.comp, as words."""
    columns, inner = values.shape
    fours, blocks = -(-inner // 4), -(-columns // BLOCK)
    made = np.zeros((fours * 4, blocks * BLOCK), np.int8)
    made[:inner, :columns] = values.T
    made = np.ascontiguousarray(made.reshape(fours, 4, blocks, BLOCK).transpose(0, 2, 1, 3)).view(np.uint8)
    if bits == 4:
        made = (made[..., :4] + 8) | (made[..., 4:] + 8) << 4
    return np.ascontiguousarray(made).view(np.uint32)


def _low_first(packed: Array) -> Array:
    """Two integers of four bits in a byte, each with 8 added, the first in the lower bits."""
    return _pairs(packed & 15, packed >> 4)


def _high_first(packed: Array) -> Array:
    """The same with the first in the upper bits."""
    return _pairs(packed >> 4, packed & 15)


def _pairs(first: Array, second: Array) -> Array:
    found: Array = np.stack([first, second], -1).reshape(first.shape[0], -1).view(np.int8) - 8
    return found


def _unchanged(elements: Array) -> Array:
    return elements


def _one_row(elements: Array) -> Array:
    return elements.reshape(1, -1)


# -- their arguments ---------------------------------------------------------------------------------------------------


def _matrix(call: Reader, position: int, datatype: DataType) -> Tensor:
    found = call.declared(position)
    if found.data is None or found.rank != 2 or found.datatype is not datatype:
        raise call.error(f"argument {position} is {found!r}: a constant matrix of {datatype.name} is taken")
    return found


def _inner(call: Reader, value: Value) -> int:
    if not value.rank:
        raise call.error("multiplies a number by a matrix")
    return value.shape[-1]


def _weight_of_bytes(call: Reader, value: Value, weight: int, scales: int) -> _Weight:
    """A byte for each integer, a scale for each column."""
    found, inner = _matrix(call, weight, DataType.INT8), _inner(call, value)
    columns = found.sizes[0]
    if not fits(found.sizes[1], inner):
        raise call.error(f"multiplies {value.shape} by the transpose of {found.sizes}")
    factors = scales_of(call, scales, columns)
    return _Weight(found, columns, inner, 8, _unchanged, "bytes", factors, _one_row, max(inner, 1))


def _weight_of_groups(call: Reader, value: Value, weight: int, scales: int, group: int) -> _Weight:
    """Four bits for each integer, a scale for each group of a column."""
    found, inner, size = _matrix(call, weight, DataType.UINT8), _inner(call, value), call.integer(group)
    columns = found.sizes[0]
    if not fits(2 * found.sizes[1], inner):
        raise call.error(f"multiplies {value.shape} by the transpose of {found.sizes}, with two numbers in a byte")
    if size < 1 or inner % size or (size % 4 and size != inner):
        raise call.error(f"has groups of {size} among {inner}: a divisor and a multiple of 4 is taken")
    factors = scales_of(call, scales, inner // size, columns)
    return _Weight(found, columns, inner, 4, _low_first, "low first", factors, _unchanged, size)


def _weight_of_halves(call: Reader, value: Value, weight: int, scales: int) -> _Weight:
    """Four bits for each integer, a scale for each column."""
    found, inner = _matrix(call, weight, DataType.UINT8), _inner(call, value)
    columns = found.sizes[0]
    if not fits(2 * found.sizes[1], inner):
        raise call.error(f"multiplies {value.shape} by the transpose of {found.sizes}, with two numbers in a byte")
    factors = scales_of(call, scales, columns)
    return _Weight(found, columns, inner, 4, _high_first, "high first", factors, _one_row, max(inner, 1))


# -- products ----------------------------------------------------------------------------------------------------------


def _product(tape: Tape, left: Value, weight: _Weight, target: Value, bias: Value | None = None) -> None:
    """Dispatch left @ weight.T + bias; a large weight in parts."""
    rows = math.prod(left.shape[:-1])
    flat = viewed(target, (rows, weight.columns))
    added = None if bias is None else Bias(bias, 0, 0, 1)
    matrix = Matrices(viewed(left, (rows, weight.inner)), weight.inner)
    for first, count, part in weight.parts(tape):
        multiply(tape, matrix, part, flat, weight.inner, bias=added, first_column=first, these_columns=count)


def _result(tape: Tape, call: Reader, value: Value, weight: _Weight) -> Value:
    return float_result(tape, call, (*value.shape[:-1], weight.columns))


def _of_bytes(tape: Tape, call: Reader) -> None:
    value = floats(call, 0)
    weight = _weight_of_bytes(call, value, 1, 2)
    _product(tape, value, weight, _result(tape, call, value, weight))


def _of_halves(tape: Tape, call: Reader) -> None:
    value = floats(call, 0)
    weight = _weight_of_halves(call, value, 1, 2)
    _product(tape, value, weight, _result(tape, call, value, weight))


def _of_groups(tape: Tape, call: Reader) -> None:
    value = floats(call, 0)
    weight = _weight_of_groups(call, value, 1, 2, 3)
    _product(tape, value, weight, _result(tape, call, value, weight), bias_of(call, 4, weight.columns))


def _of_dynamic_integers(tape: Tape, call: Reader) -> None:
    """With numbers rounded to the row's integers, by its scale and zero point."""
    value = floats(call, 0)
    weight = _weight_of_groups(call, value, 3, 5, 6)
    check_sums(call, 4, weight.inner // weight.group, weight.columns)
    rows = math.prod(value.shape[:-1])
    scales, zero_points = floats(call, 1), call.tensor(2)
    if (scales.count, zero_points.count) != (rows, rows) or zero_points.is_float:
        raise call.error(f"has {scales.count} scales and {zero_points.count} zero points for {rows} rows")
    made = tape.scratch(value.shape)
    affine(tape, Affine.BOTH, value, made, Blocks(scales, zero_points, (rows, weight.inner), (rows, 1)))
    _product(tape, made, weight, _result(tape, call, value, weight), bias_of(call, 7, weight.columns))


def _of_static_integers(tape: Tape, call: Reader) -> None:
    """With integers, or with numbers that are rounded to integers."""
    value = call.tensor(0)
    weight = _weight_of_bytes(call, value, 3, 5)
    check_sums(call, 4, weight.columns)
    made = tape.scratch(value.shape)
    step = read_step(call, 1, DataType.INT8 if value.is_float else value.datatype)
    affine(tape, Affine.BOTH if value.is_float else Affine.DEQUANTIZE, value, made, step)
    _product(tape, made, weight, _result(tape, call, value, weight), bias_of(call, 6, weight.columns))


def _between_integers(tape: Tape, call: Reader) -> None:
    """From integers to integers. Sums of integer products are exact up to 2^24, and have PyTorch's precision beyond."""
    value = call.tensor(0)
    weight = _weight_of_bytes(call, value, 3, 5)
    check_sums(call, 4, weight.columns)
    target = tape.result(call.result, (*value.shape[:-1], weight.columns))
    given, step, bounds = (
        read_step(call, 1, value.datatype),
        read_step(call, 6, target.datatype),
        integers(call, target.datatype),
    )
    factors = factors_of(tape, weight.scales, weight.columns, given.scale)
    what = Sums(factors, bias_of(call, 8, weight.columns))
    sums = tape.scratch(target.shape)
    _product(tape, whole_numbers(tape, value, given.zero_point), _unscaled(weight), sums)
    requantize(tape, sums, target, given, step, bounds, sums=what, relu=activation(call, 9))


def _unscaled(weight: _Weight) -> _Weight:
    def order(elements: Array) -> Array:
        return np.ones((1, elements.shape[0]), np.float32)

    return replace(weight, order=order, form=(weight.form, "unscaled"))


# -- embeddings --------------------------------------------------------------------------------------------------------


def _embedding(tape: Tape, call: Reader) -> None:
    table, group, indices = _matrix(call, 0, DataType.UINT8), call.integer(2), call.tensor(3)
    rows, columns = table.sizes[0], 2 * table.sizes[1]
    if group < 1 or columns % group:
        raise call.error(f"has groups of {group} among {columns}")
    scales_of(call, 1, rows, columns // group)
    if call.declared(1).sizes[1] != columns // group:
        raise call.error(f"has the scales {call.declared(1).sizes} for groups of {group} among {columns}")
    if indices.is_float or (not rows and indices.count):
        raise call.error(f"looks up {'numbers' if indices.is_float else 'rows'} in {table.sizes}")
    target = float_result(tape, call, (*indices.shape, columns))
    words = -(-columns // 8)
    swapped = not call.truth(4)

    def pack(elements: Array) -> Array:
        found = (elements << 4 | elements >> 4) if swapped else elements
        return np.ascontiguousarray(np.pad(found, ((0, 0), (0, 4 * words - found.shape[1])))).view(np.uint32)

    packed = tape.constant(table, (rows * words,), ("rows", swapped), pack)
    push = (target.count, rows, columns, words, group, columns // group, tape.call + 1)
    buffers = (packed, call.tensor(1), indices, target, tape.fault)
    tape.dispatch("embedding", buffers, push, (target.is_half,), items=target.count, written=2)


KERNELS: Final[dict[str, Kernel]] = {
    "aten._weight_int8pack_mm.default": _of_bytes,
    "et_vk.linear_qcs4w.default": _of_halves,
    "et_vk.linear_q4gsw.default": _of_groups,
    "et_vk.linear_dq8ca_q4gsw.default": _of_dynamic_integers,
    "et_vk.linear_q8ta_q8csw.default": _of_static_integers,
    "et_vk.q8ta_linear.default": _between_integers,
    "et_vk.q8ta_linear_gemv.default": _between_integers,
    "et_vk.embedding_q4gsw.default": _embedding,
}
