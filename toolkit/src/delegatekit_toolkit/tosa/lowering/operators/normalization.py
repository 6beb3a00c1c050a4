"""Normalization of rows of int8 or int16, in 32-bit integers and with one rounding at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import rms_epsilon
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import DType, Tensor
from delegatekit_toolkit.tosa.types import Array

from ..arithmetic import Arithmetic
from ..limits import MAX_AXIS, MAX_NORM, MAX_ROOT_MEAN_SQUARE
from ..program import ProgramBuilder
from ..values import Result, Value
from .common import Rows, constant_parameters
from .variance import DIFFERENCE, ROOT_BITS, Norm, Root, Statistics, row_roots, statistics, widened

#: Results of products, without the sign; and of RESCALE, which TOSA defines up to 2^29 if a scale is a power of two.
_BITS: Final = 30
_WIDE_BITS: Final = 29
#: There are devices that round a product twice if it is shifted farther.
_MOST_SHIFTED: Final = 31


# -- constraints -----------------------------------------------------------------------------------------------------


def _obstacle(shape: Sequence[int], rows: int, *, centred: bool = True) -> str | None:
    """The reason for refusing norms of a tensor split into this many rows; `centred`: their means are subtracted."""
    size = math.prod(shape) // rows
    most = MAX_NORM if centred else MAX_ROOT_MEAN_SQUARE
    if not 2 <= size <= most:
        return f"a norm of {size} elements: 2 to {most} are possible"
    return None if rows <= MAX_AXIS else f"{rows} norms: {MAX_AXIS} is the maximum"


def normalizes_rows(call: Call) -> str | None:
    """Over 2 to 16384 elements (without a mean 4096), at most 65536 times."""
    shape, sizes = call["input"].shape, call["normalized_shape"]
    centred = call.operator != "aten.rms_norm.default"
    return _obstacle(shape, math.prod(shape[: len(shape) - len(sizes)]), centred=centred)


def normalizes_groups(call: Call) -> str | None:
    """Over 2 to 16384 elements, at most 65536 times."""
    shape = call["input"].shape
    return _obstacle(shape, shape[0] * call["num_groups"])


def normalizes_channels(call: Call) -> str | None:
    """Over 2 to 16384 elements, at most 65536 times; by the input's own mean and variance."""
    shape = call["input"].shape
    if not call["use_input_stats"]:
        return "normalizes by recorded statistics"
    return _obstacle(shape, math.prod(shape[:2]))


# -- arithmetic ------------------------------------------------------------------------------------------------------


def _normalized(b: ProgramBuilder, norm: Norm, result: Result) -> Tensor:
    """The rows, normalized, as the integers of a result.

    Its steps are a power of two times the preceding ones, so that the last sum yields them directly.
    """
    do = Arithmetic(b)
    found = statistics(b, norm)
    root = row_roots(b, norm, found)
    ready, factor, shift, unit = (_by_factors if norm.before.dtype == DType.INT8 else _by_places)(b, norm, found, root)
    # A difference over sqrt(W) is 1 at most: 2^30 here.
    unit *= math.sqrt(norm.size) * 2.0 ** (shift - ROOT_BITS - 15.5 - root.dropped / 2)
    affine = _affine(norm, unit, result.scale.scale)
    if affine.gain != 1:
        factor = b.rescaled(factor, [affine.gain], name="factor")
    x = do.mul(ready, factor, "normal", shift=shift)
    if affine.weight is not None:
        x = do.mul(x, _quick(b, affine.weight, "weight"), "weighted", shift=_MOST_SHIFTED)
    x = do.add(x, _quick(b, affine.bias, "bias"), "sum")
    return b.stored_as(x, [result.scale.scale * 2.0**-affine.bits], result)


def _by_factors(b: ProgramBuilder, norm: Norm, found: Statistics, root: Root) -> tuple[Tensor, Tensor, int, float]:
    """Differences, a factor for each row, the shift of their products, and the unit: root * 2^half is 1.

    All rows have one shift: the factors of those that vary most have 13 bits, and 20 of those that vary as usual.
    """
    do = Arithmetic(b)
    bits = _WIDE_BITS - DIFFERENCE[norm.before.dtype]
    zero = 0 if norm.centred else norm.before.zero_point
    x = b.reshaped(widened(b, norm.rows, bits, zero), norm.shape)
    if found.rest is not None:
        assert found.sums is not None
        x = do.sub(x, b.rescaled(found.sums, [2.0**bits / norm.size], name="mean"), "centred")
    factor = do.right(root.root, do.sub(root.most, root.half, "places"), "factor")
    # The product is d / sqrt(W) * 2^(bits + 44.5 - most + dropped / 2), and becomes 2^30 at most: d is sqrt(W) at most,
    # and, where eps is large, 2^8, when sqrt(W) is 2^(14.5 - most + dropped / 2) at least.
    shift = min(math.ceil(bits + 14.5 - root.most), bits + DIFFERENCE[norm.before.dtype])
    return x, factor, shift, 2.0 ** (root.most - bits)


def _by_places(b: ProgramBuilder, norm: Norm, found: Statistics, root: Root) -> tuple[Tensor, Tensor, int, float]:
    """The same for int16: differences times 2^half, so that the factors need not be shifted.

    d * 2^(half - dropped / 2) is 2^15.5 at most, as d is sqrt(W) at most, and half is `most` at most. With the
    fractional bits that this leaves room for, the whole has 29 bits, and the shift is 29 at most.
    """
    do = Arithmetic(b)
    bits = math.floor(_WIDE_BITS - min(15.5 + root.dropped / 2, DIFFERENCE[norm.before.dtype] + root.most))
    places = do.add(root.half, bits, "places")
    assert found.differences is not None
    x = do.left(b.reshaped(found.differences, norm.shape), places, "shifted")
    if found.rest is not None:
        part = b.rescaled(found.rest, [2.0**_WIDE_BITS / norm.size], name="part")
        part = do.right(part, do.sub(_WIDE_BITS, places, "places"), "part")
        x = do.sub(x, part, "centred")
    return x, root.root, ROOT_BITS, 2.0**-bits


@dataclass(frozen=True)
class _Affine:
    """The affine map of normalized numbers: times `gain`, applied to the root, times weight * 2^-31, plus bias.

    The sum has `bits` fractional bits of the result's steps.
    """

    gain: float
    weight: Array | None
    bias: Array
    bits: int


def _affine(norm: Norm, unit: float, step: float) -> _Affine:
    """For numbers of 30 bits; `unit` is the value of 1 of these, `step` that of one of the result's.

    The gain is 1/2 at most: the numbers, and those times the weight, are 2^29 at most, and so are biases. If the steps
    are so small that almost everything exceeds the result's range, larger ones suffice: RESCALE requires less than
    2^28.
    """
    weight = np.ones(1) if norm.weight is None else norm.weight
    bias = np.zeros((1, 1, 1, 1)) if norm.bias is None else norm.bias
    top, largest = float(np.abs(weight).max()), float(np.abs(bias).max())
    most = max(top * unit * (1 << _BITS), largest)
    step = max(step, most * 2.0**-27)
    first = float(weight.flat[0])
    if first > 0 and (weight == first).all():
        bits = min(math.floor(math.log2(step / (unit * first))) - 1, 62)
        if largest / step * 2.0**bits <= 1 << 29:
            return _Affine(unit * first * 2.0**bits / step, None, np.rint(bias / step * 2.0**bits), bits)
        weight = np.full((1, 1, 1, 1), first)
    bits = min(math.floor(29 + math.log2(step / most)), 62) if most else 2
    factors = np.rint(weight * (unit * 2.0 ** (bits + _MOST_SHIFTED) / step))
    return _Affine(1.0, factors, np.rint(bias / step * 2.0**bits), bits)


def _quick(b: ProgramBuilder, numbers: Array, name: str) -> Tensor:
    """Constants copied by an operation: in place they would be read again for each row, from slow memory."""
    data = b.graph.constant(numbers, DType.INT32, f"{b.name}.{name}")
    return Arithmetic(b).add(data, 0, name)


# -- operators -------------------------------------------------------------------------------------------------------


def _layer_norm(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _over_last(b, call, result, call["bias"], float(call["eps"]), centred=True)


def _rms_norm(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _over_last(b, call, result, None, rms_epsilon(call), centred=False)


def _over_last(
    b: ProgramBuilder, call: Call, result: Result, bias: Operand | None, eps: float, *, centred: bool
) -> Value:
    """Over the last axes, which may have any order."""
    operand = call["input"]
    value, before = b.integers(operand), b.scale(operand)
    first = len(value.order) - len(call["normalized_shape"])
    inner = [axis for axis in value.order if axis >= first]
    order = (*(axis for axis in value.order if axis < first), *inner)
    tensor = b.stored(value, order)
    size = math.prod([value.shape[axis] for axis in inner])
    weight, shift = (
        None if numbers is None else numbers.transpose([axis - first for axis in inner]).reshape(1, 1, 1, size)
        for numbers in (b.numbers(call["weight"]), b.numbers(bias))
    )
    rows = b.reshaped(tensor, (1, tensor.size // size, 1, size))
    made = _normalized(b, Norm(rows, rows.shape, before, eps, weight, shift, centred), result)
    return Value(b.reshaped(made, tensor.shape), order)


def _group_norm(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _over_groups(b, call, result, call["num_groups"])


def _instance_norm(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _over_groups(b, call, result, call["input"].shape[1])


def _over_groups(b: ProgramBuilder, call: Call, result: Result, groups: int) -> Value:
    """Over the channels of each group and all axes after them."""
    operand = call["input"]
    value, before = b.integers(operand), b.scale(operand)
    samples, channels, *sizes = value.shape
    each = channels // groups
    weight, bias = (
        None if numbers is None else np.tile(numbers.reshape(1, groups, each, 1), (1, samples, 1, 1))
        for numbers in (b.numbers(call[name]) for name in ("weight", "bias"))
    )
    shape = (1, samples * groups, each, math.prod(sizes))
    rows = b.reshaped(b.contiguous(value), (1, samples * groups, 1, each * math.prod(sizes)))
    made = _normalized(b, Norm(rows, shape, before, float(call["eps"]), weight, bias), result)
    return Value.dense(b.reshaped(made, value.shape))


_PARAMETERS: Final = ("weight", "bias")

ROWS: Rows = tuple(
    row(operator, lower, constant_parameters(*names), normalizes, keep=True, constants=names)
    for operator, lower, names, normalizes in (
        ("layer_norm.default", _layer_norm, _PARAMETERS, normalizes_rows),
        ("rms_norm.default", _rms_norm, _PARAMETERS[:1], normalizes_rows),
        ("group_norm.default", _group_norm, _PARAMETERS, normalizes_groups),
        ("instance_norm.default", _instance_norm, (*_PARAMETERS, "running_mean", "running_var"), normalizes_channels),
    )
)
