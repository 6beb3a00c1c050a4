"""Normalization of rows of int8 or int16, in integers of 32 bits and with one rounding at the end.

The sum of a row, and that of the squares, are exact. The variance is brought to 30 bits by its leading zeros; two of
Newton's steps make 1 / sqrt of what a table has of it. So rows have the same relative error, however much they vary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from delegatekit_api import argument

from ..layout import Value
from ..tosa import (
    Add,
    ArithmeticRightShift,
    Clz,
    DType,
    LogicalLeftShift,
    Maximum,
    Minimum,
    Mul,
    Operator,
    ReduceSum,
    Sub,
    Tensor,
)
from ..tosa.types import Array
from .context import Builder, Emitter, Lowering, Result, Scale, count
from .functions import looked_up
from .weighted import convolved, pointwise

if TYPE_CHECKING:
    from torch.fx import Node

#: Bits of a difference between two integers.
_DIFFERENCE: Final = {DType.INT8: 8, DType.INT16: 16}
#: 1 / sqrt of a number from 1/4 to 1 has so many bits behind the point; the number itself 31.
_ROOT_BITS: Final = 29
#: Results of products, without the sign.
_BITS: Final = 30
#: eps is at most so many bits, in squares of a row's steps; of larger ones the last bits are left out.
_EPS_BITS: Final = 28
#: Up to so many places factors of rows may differ: with more the rows are shifted.
_SPREAD: Final = 15
#: Channels of the convolution that makes int32 of a tensor.
_CHANNELS: Final = 1024


@dataclass(frozen=True)
class _Norm:
    """What is normalized: a tensor (1, rows, A, B) along its last two axes.

    `weight` and `bias` are numbers that broadcast against it. `centred`: the mean is subtracted, not the zero point.
    """

    rows: Tensor
    before: Scale
    eps: float
    weight: Array | None
    bias: Array | None
    centred: bool = True

    @property
    def size(self) -> int:
        """Elements of a row."""
        return count(self.rows.shape[2:])

    @property
    def eps_in_steps(self) -> float:
        """What is added to the sum of the squares."""
        return self.size * self.eps / self.before.scale**2


@dataclass(frozen=True)
class _Statistics:
    """Of each row: what it is made of, in steps of the input. All are (1, rows, 1, 1) or, `differences`, the rows.

    The centre is `centre` and, with the mean, `rest` / n more. The squares of the differences from `centre` sum up to
    `low` + 2^9 `middle` + 2^16 `high`.
    """

    centre: Tensor
    rest: Tensor | None
    low: Tensor
    middle: Tensor | None = None
    high: Tensor | None = None
    differences: Tensor | None = None


class _Arithmetic:
    """int32 arithmetic with broadcasting; numbers are constants."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def do(self, operator: Operator, left: Tensor | int, right: Tensor | int, name: str, *more: Tensor) -> Tensor:
        first, second = (
            self.b.graph.constant([[[[item]]]], DType.INT32) if isinstance(item, int) else item
            for item in (left, right)
        )
        shape = [max(pair) for pair in zip(first.shape, second.shape, strict=True)]
        return self.b.emit(operator, (first, second, *more), shape, DType.INT32, name)

    def add(self, left: Tensor | int, right: Tensor | int, name: str) -> Tensor:
        return self.do(Add(), left, right, name)

    def sub(self, left: Tensor | int, right: Tensor | int, name: str) -> Tensor:
        return self.do(Sub(), left, right, name)

    def mul(self, left: Tensor, right: Tensor | int, name: str, shift: int = 0) -> Tensor:
        """The product, by 2^shift, rounded."""
        return self.do(Mul(), left, right, name, self.b.number(shift))

    def zeros(self, x: Tensor) -> Tensor:
        """Leading zeros."""
        return self.b.emit(Clz(), (x,), x.shape, DType.INT32, "zeros")

    def left(self, x: Tensor, places: Tensor | int, name: str) -> Tensor:
        return self.do(LogicalLeftShift(), x, places, name)

    def right(self, x: Tensor, places: Tensor | int, name: str) -> Tensor:
        return self.do(ArithmeticRightShift(round=True), x, places, name)

    def shifted(self, x: Tensor, places: Tensor, name: str) -> Tensor:
        """x * 2^places; of the places 31 at most count, either way."""
        up = self.do(Minimum(), self.do(Maximum(), places, 0, "up"), 31, "up")
        down = self.do(Minimum(), self.do(Maximum(), self.sub(0, places, "down"), 0, "down"), 31, "down")
        return self.right(self.left(x, up, name), down, name)


# -- statistics ------------------------------------------------------------------------------------------------------


def _sums(b: Lowering, x: Tensor) -> Tensor:
    """The sum of each row, exact: 2^15 * 2^14 at most."""
    flat = b.reshaped(x, (1, x.shape[1], 1, count(x.shape[2:])))
    ones = np.ones((1, flat.shape[3]), np.int8)
    sums, _ = pointwise(b, flat, Scale(1.0, 0, x.dtype), ones, np.ones(1), None)
    return sums if sums.dtype == DType.INT32 else b.rescaled(sums, [1.0], name="sums")


def _reduced(b: Lowering, squares: Tensor, name: str) -> Tensor:
    flat = b.reshaped(squares, (1, squares.shape[1], 1, count(squares.shape[2:])))
    return b.emit(ReduceSum(3), (flat,), (1, squares.shape[1], 1, 1), DType.INT32, name)


def _product(b: Lowering, left: Tensor, right: Tensor, name: str) -> Tensor:
    return b.emit(Mul(), (left, right, b.number(0)), left.shape, DType.INT32, name)


def _centre(b: Lowering, norm: _Norm, sums: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, rounded, and what is missing, times n; or the zero point, and so on."""
    do = _Arithmetic(b)
    if norm.centred:
        centre = b.rescaled(sums, [1 / norm.size], name="centre")
        return centre, do.sub(sums, do.mul(centre, norm.size, "whole"), "rest")
    zero = norm.before.zero_point
    return b.graph.constant([[[[zero]]]], DType.INT32), do.sub(sums, zero * norm.size, "rest")


def _statistics8(b: Lowering, norm: _Norm) -> _Statistics:
    """The squares of the integers themselves are summed up: n * 2^14 at most.

    sum (x - c)^2 = sum x^2 - c * (sum x + rest) with rest = sum x - n * c. Products and sums stay below 2^30: n is 2^14
    at most, and 2^12 if c is the zero point, when x - c has 8 bits and the rest as many as the sum.
    """
    do = _Arithmetic(b)
    squares = _reduced(b, _product(b, norm.rows, norm.rows, "squares"), "squares")
    sums = _sums(b, norm.rows)
    centre, rest = _centre(b, norm, sums)
    excess = do.mul(do.add(sums, rest, "twice"), centre, "excess")
    return _Statistics(centre, rest if norm.centred else None, do.sub(squares, excess, "total"))


def _statistics16(b: Lowering, norm: _Norm) -> _Statistics:
    """Differences of 16 bits and a sign are 256 * high + low, with high from -256 to 256 and low of 8 bits.

    The squares of the differences sum up to n * 2^30 at most; so high^2 to little more than n * 2^14, and so do
    high * low and low^2: 2^29 with n of 2^14.
    """
    do = _Arithmetic(b)
    wide = b.rescaled(norm.rows, [1.0], name="operand")
    if norm.centred:
        centre, rest = _centre(b, norm, _sums(b, norm.rows))
        differences, more = do.sub(wide, centre, "differences"), rest
    else:
        # The zero point is 0.
        centre, more, differences = b.graph.constant([[[[0]]]], DType.INT32), None, wide
    high = do.right(differences, 8, "high")
    low = do.sub(differences, do.left(high, 8, "whole"), "low")
    total = [
        _reduced(b, _product(b, left, right, "squares"), "squares")
        for left, right in ((low, low), (high, low), (high, high))
    ]
    return _Statistics(centre, more, *total, differences)


# -- the root --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Root:
    """1 / sqrt of each row's sum of squares is `root` * 2^(half - 44.5 - dropped / 2).

    `half` is from `least` to `most` in rows that are not of one value only.
    """

    root: Tensor
    half: Tensor
    least: int
    most: int
    dropped: int


def _root(b: Lowering, norm: _Norm, found: _Statistics) -> _Root:
    """Of the sum of squares W, eps among them, and so many times 4 as bring it to 2^29 to 2^31.

    In rows that are not of one value W is 1/2 at least. In others whatever comes out is multiplied by 0.
    """
    do, size = _Arithmetic(b), norm.size
    dropped = max(0, 2 * math.ceil((math.log2(max(norm.eps_in_steps, 1.0)) - _EPS_BITS) / 2))
    eps = norm.eps_in_steps * 2.0**-dropped
    largest = size * 2.0 ** (2 * _DIFFERENCE[norm.before.dtype] - (2 if norm.centred else 0)) * 2.0**-dropped + eps
    low = found.low if not dropped else b.rescaled(found.low, [2.0**-dropped], name="low")
    low = do.add(low, math.floor(eps), "low")
    if found.high is None:
        # `low` is below 2^29: q of 2^28 at most, and eps. It becomes 2^28 to 2^29.
        places = do.sub(do.zeros(low), 3, "places")
        total = do.left(low, places, "total")
    else:
        # Neither 2^16 * high nor `low` becomes more than 2^27; the sum is 4.25 times as much at most, as
        # |2^9 high * low| is at most 2^16 high^2. It is a quarter of the larger one at least.
        assert found.middle is not None
        upper = do.add(do.zeros(found.high), dropped - 16, "upper")
        places = do.sub(do.do(Minimum(), upper, do.zeros(low), "places"), 5, "places")
        total = do.shifted(low, places, "low")
        for part, bits in ((found.middle, 9), (found.high, 16)):
            total = do.add(total, do.shifted(part, do.add(places, bits - dropped, "places"), "part"), "total")
    total = _completed(b, total, places, eps, dropped, size, found.rest)
    # Below 2^30, so that there are two leading zeros at least; 0 if all is 0.
    half = do.do(ArithmeticRightShift(), do.add(places, do.sub(do.zeros(total), 1, "more"), "sum"), 1, "half")
    again = do.sub(do.add(half, half, "even"), places, "places")
    mantissa = do.do(Maximum(), do.left(total, again, "mantissa"), 1 << 29, "mantissa")
    # A little is left for what rounding makes less of the smallest.
    least = math.floor((29 - math.log2(largest)) / 2)
    most = math.floor((31 - math.log2(max(eps, 2.0 ** -(1 + dropped)) * 0.9)) / 2)
    return _Root(_inverse_root(b, mantissa), do.do(Minimum(), half, most, "half"), least, most, dropped)


def _completed(
    b: Lowering, total: Tensor, places: Tensor, eps: float, dropped: int, size: int, rest: Tensor | None
) -> Tensor:
    """With what a sum of squares lacks: the fraction of eps, and less rest^2 / n, which is half of the sum at most.

    rest is n/2 + 1 at most: with `bits` behind the point, rest^2 / n has 29.
    """
    do = _Arithmetic(b)
    bits = 29 - math.ceil(math.log2(size / 4 + 2))
    fraction = math.floor((eps - math.floor(eps)) * (1 << bits))
    if rest is not None:
        part = b.rescaled(do.mul(rest, rest, "square"), [2.0 ** (bits - dropped) / size], name="part")
        missing = do.sub(fraction, part, "missing")
    elif fraction:
        missing = b.graph.constant(np.full(total.shape, fraction), DType.INT32)
    else:
        return total
    return do.add(total, do.shifted(missing, do.sub(places, bits, "places"), "missing"), "total")


def _inverse_root(b: Lowering, x: Tensor) -> Tensor:
    """1 / sqrt of numbers from 1/4 to 1 with 31 bits: 1 to 2 with 29.

    A table of int8 has it to 0.4 %; Newton's step, r * (3 - x * r^2) / 2, to 3e-5, and the next as well as it can be.
    """
    do = _Arithmetic(b)
    index = b.rescaled(x, [2.0**-23], output_zero=-128, dtype=DType.INT8, name="index")
    points = np.maximum(np.arange(256), 64) / 256
    entries = np.minimum(np.rint((1 << 15) / np.sqrt(points)), (1 << 16) - 1)
    root = do.left(looked_up(b, index, entries, "root"), _ROOT_BITS - 15, "root")
    for _ in range(2):
        square = do.mul(root, root, "square", shift=30)
        error = do.sub(3 << 28, do.mul(square, x, "one", shift=31), "error")
        root = do.mul(root, error, "root", shift=29)
    return root


# -- the result ------------------------------------------------------------------------------------------------------


def _normalized(b: Lowering, norm: _Norm, result: Result) -> Tensor:
    """The rows, normalized, as the integers of a result."""
    do = _Arithmetic(b)
    found = (_statistics8 if norm.before.dtype == DType.INT8 else _statistics16)(b, norm)
    root = _root(b, norm, found)
    # Differences times 2^half are sqrt(W) * 2^half at most, 2^15.5.
    unit = math.sqrt(norm.size) * 2.0 ** (-15.5 - root.dropped / 2)
    if root.most - root.least <= _SPREAD:
        bits = _BITS - _DIFFERENCE[norm.before.dtype]
        factor = do.right(root.root, do.sub(root.most, root.half, "places"), "factor")
        shift = math.ceil(bits + 14.5 - root.most)
        product = do.mul(_centred(b, norm, found, bits), factor, "normal", shift=shift)
        unit *= 2.0 ** (shift - bits - _ROOT_BITS + root.most)
    else:
        bits = math.floor(_BITS - 15.5 + root.least)
        places = do.sub(root.half, root.least, "places")
        shifted = do.left(_centred(b, norm, found, bits), places, "shifted")
        product = do.mul(shifted, root.root, "normal", shift=30)
        unit *= 2.0 ** (30 - bits - _ROOT_BITS + root.least)
    return _affine(b, product, unit, norm, result)


def _centred(b: Lowering, norm: _Norm, found: _Statistics, bits: int) -> Tensor:
    """Differences from the centre, with so many bits behind the point."""
    do = _Arithmetic(b)
    if found.differences is not None:
        wide = b.rescaled(found.differences, [2.0**bits], name="wide")
        if found.rest is None:
            return wide
        return do.sub(wide, b.rescaled(found.rest, [2.0**bits / norm.size], name="rest"), "centred")
    wide = _widened(b, norm.rows, bits, 0 if norm.centred else norm.before.zero_point)
    if found.rest is None:
        return wide
    whole, part = b.rescaled(found.centre, [2.0**bits]), b.rescaled(found.rest, [2.0**bits / norm.size])
    return do.sub(wide, do.add(whole, part, "mean"), "centred")


def _widened(b: Lowering, x: Tensor, bits: int, zero_point: int) -> Tensor:
    """int8 as int32, with so many bits behind the point: a depthwise convolution is the fastest, but on the U65."""

    def by_channels(b: Builder, x: Tensor) -> Tensor:
        channels = max(size for size in range(1, _CHANNELS + 1) if x.size % size == 0)
        image = b.reshaped(x, (1, x.size // channels, 1, channels))
        ones = np.ones((channels, 1, 1, 1), np.int8)
        settings = ((1, 1), (0, 0, 0, 0), (1, 1), channels, image.shape[1:3])

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.rescaled(sums, [2.0**bits], name="wide")

        wide = convolved(b, image, Scale(1.0, zero_point), ones, np.ones(channels), None, *settings, finish)
        return b.reshaped(wide, x.shape)

    def plain(b: Builder, x: Tensor) -> Tensor:
        return b.rescaled(x, [2.0**bits], zero_point=zero_point, name="wide")

    return b.cheapest(x, [by_channels, plain], ("widen", bits, zero_point))


def _affine(b: Lowering, x: Tensor, unit: float, norm: _Norm, result: Result) -> Tensor:
    """Times the weight, plus the bias; x has 30 bits, and `unit` is what 1 stands for."""
    do = _Arithmetic(b)
    weight, bias = norm.weight, norm.bias
    if weight is None or bool((weight == weight.flat[0]).all() and weight.flat[0] > 0):
        unit *= 1.0 if weight is None else float(weight.flat[0])
        weight = None
    largest = 0.0 if bias is None else float(np.abs(bias).max())
    if weight is None and largest > unit * (1 << 29):
        weight = np.ones((1, 1, 1, 1))
    if weight is not None:
        top = float(np.abs(weight).max()) or 1.0
        # The product has 29 bits, and so has the bias: less where it is larger.
        more = max(0, math.ceil(math.log2(max(largest / (2 * unit * top * (1 << 29)), 1.0))))
        x = do.mul(x, _quick(b, np.rint(weight / top * (1 << _BITS)), "weight"), "weighted", shift=31 + min(more, 32))
        unit *= top * 2.0 ** (1 + min(more, 32))
    if bias is not None and largest:
        x = do.add(x, _quick(b, np.rint(bias / unit), "bias"), "sum")
    return b.stored_as(x, [unit], result)


def _quick(b: Lowering, numbers: Array, name: str) -> Tensor:
    """Constants that an operation copies: where they lie they would be read again for each row, from slow memory."""
    data = b.graph.constant(numbers, DType.INT32, f"{b.name}.{name}")
    return _Arithmetic(b).add(data, 0, name)


# -- operators -------------------------------------------------------------------------------------------------------


def _layer_norm(b: Lowering, node: Node, result: Result) -> Value:
    return _over_last(b, node, result, argument(node, "bias"), float(argument(node, "eps")), centred=True)


def _rms_norm(b: Lowering, node: Node, result: Result) -> Value:
    eps = argument(node, "eps")
    return _over_last(b, node, result, None, torch.finfo(torch.float32).eps if eps is None else eps, centred=False)


def _over_last(b: Lowering, node: Node, result: Result, bias: Any, eps: float, *, centred: bool) -> Value:
    """Over the last axes, which may lie in any order."""
    operand = argument(node, "input")
    value, before = b.integers(operand), b.scale(operand)
    first = len(value.order) - len(argument(node, "normalized_shape"))
    inner = [axis for axis in value.order if axis >= first]
    order = (*(axis for axis in value.order if axis < first), *inner)
    tensor = b.stored(value, order)
    size = count([value.shape[axis] for axis in inner])
    weight, shift = (
        None if numbers is None else numbers.transpose([axis - first for axis in inner]).reshape(1, 1, 1, size)
        for numbers in (b.numbers(argument(node, "weight")), b.numbers(bias))
    )
    rows = b.reshaped(tensor, (1, tensor.size // size, 1, size))
    made = _normalized(b, _Norm(rows, before, eps, weight, shift, centred), result)
    return Value(b.reshaped(made, tensor.shape), order)


def _group_norm(b: Lowering, node: Node, result: Result) -> Value:
    return _over_groups(b, node, result, argument(node, "num_groups"))


def _instance_norm(b: Lowering, node: Node, result: Result) -> Value:
    return _over_groups(b, node, result, argument(node, "input").meta["val"].shape[1])


def _over_groups(b: Lowering, node: Node, result: Result, groups: int) -> Value:
    """Over the channels of each group and all that is behind them."""
    operand = argument(node, "input")
    value, before = b.integers(operand), b.scale(operand)
    samples, channels, *sizes = value.shape
    each = channels // groups
    weight, bias = (
        None if numbers is None else np.tile(numbers.reshape(1, groups, each, 1), (1, samples, 1, 1))
        for numbers in (b.numbers(argument(node, name)) for name in ("weight", "bias"))
    )
    rows = b.reshaped(b.contiguous(value), (1, samples * groups, each, count(sizes)))
    made = _normalized(b, _Norm(rows, before, float(argument(node, "eps")), weight, bias), result)
    return Value.dense(b.reshaped(made, value.shape))


EMITTERS: dict[str, Emitter] = {
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    "aten.instance_norm.default": _instance_norm,
}
