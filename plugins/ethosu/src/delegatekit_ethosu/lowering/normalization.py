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
from .weighted import convolved, pointwise

if TYPE_CHECKING:
    from torch.fx import Node

#: Bits of a difference between two integers.
_DIFFERENCE: Final = {DType.INT8: 8, DType.INT16: 16}
#: 1 / sqrt of a number from 1/4 to 1 has so many bits behind the point; the number itself 31.
_ROOT_BITS: Final = 29
#: Results of products, without the sign; and of RESCALE, which TOSA defines up to 2^29 where a scale is a power of two.
_BITS: Final = 30
_WIDE_BITS: Final = 29
#: eps is at most so many bits, in squares of a row's steps; of larger ones the last bits are left out.
_EPS_BITS: Final = 28
#: Up to so many places factors of rows may differ: with more the rows are shifted.
_SPREAD: Final = 15
#: Vela (5.1) rounds a product on the U55 and U65 twice if it is shifted farther.
_MOST_SHIFTED: Final = 31
#: Channels of the convolution that makes int32 of a tensor.
_CHANNELS: Final = 1024


@dataclass(frozen=True)
class _Norm:
    """What is normalized: a tensor (1, rows, 1, n) along its last axis.

    `weight` and `bias` are numbers that broadcast against the same elements in `shape`, (1, rows, A, B). `centred`: the
    mean is subtracted, not the zero point.
    """

    rows: Tensor
    shape: tuple[int, ...]
    before: Scale
    eps: float
    weight: Array | None
    bias: Array | None
    centred: bool = True

    @property
    def size(self) -> int:
        """Elements of a row."""
        return self.rows.shape[3]

    @property
    def eps_in_steps(self) -> float:
        """What is added to the sum of the squares."""
        return self.size * self.eps / self.before.scale**2


@dataclass(frozen=True)
class _Statistics:
    """Of each row: what it is made of, in steps of the input. All are (1, rows, 1, 1) or, `differences`, the rows.

    The centre is `centre` and, if it is the mean, `rest` / n more: `sums` / n together. The squares of the differences
    from `centre` sum up to `low` + 2^9 `middle` + 2^16 `high`.
    """

    centre: Tensor
    rest: Tensor | None
    sums: Tensor | None
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

    def right(self, x: Tensor | int, places: Tensor | int, name: str) -> Tensor:
        return self.do(ArithmeticRightShift(round=True), x, places, name)

    def shifted(self, x: Tensor, places: Tensor, name: str) -> Tensor:
        """x * 2^places; of the places 31 at most count, either way."""
        up = self.do(Minimum(), self.do(Maximum(), places, 0, "up"), 31, "up")
        down = self.do(Minimum(), self.do(Maximum(), self.sub(0, places, "down"), 0, "down"), 31, "down")
        return self.right(self.left(x, up, name), down, name)


# -- statistics ------------------------------------------------------------------------------------------------------


def _sums(b: Lowering, x: Tensor) -> Tensor:
    """The sum of each row, exact: 2^15 * 2^14 at most."""

    def by_channels(b: Builder, x: Tensor) -> Tensor:
        ones = np.ones((1, x.shape[3]), np.int8)
        sums, _ = pointwise(b, x, Scale(1.0, 0, x.dtype), ones, np.ones(1), None)
        return sums if sums.dtype == DType.INT32 else b.rescaled(sums, [1.0], name="sums")

    def plain(b: Builder, x: Tensor) -> Tensor:
        return _reduced(b, b.rescaled(x, [1.0], name="operand"), "sums")

    return b.cheapest(x, [by_channels, plain], "sums of rows")


def _reduced(b: Builder, squares: Tensor, name: str) -> Tensor:
    return b.emit(ReduceSum(3), (squares,), (*squares.shape[:3], 1), DType.INT32, name)


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
    return _Statistics(centre, rest if norm.centred else None, sums, do.sub(squares, excess, "total"))


def _statistics16(b: Lowering, norm: _Norm) -> _Statistics:
    """Differences of 16 bits and a sign are 256 * high + low, with high from -256 to 256 and low of 8 bits.

    The squares of the differences sum up to n * 2^30 at most; so high^2 to little more than n * 2^14, and so do
    high * low and low^2: 2^29 with n of 2^14.
    """
    do = _Arithmetic(b)
    wide = _widened(b, norm.rows, 0, 0)
    if norm.centred:
        centre, rest = _centre(b, norm, _sums(b, norm.rows))
        differences, more = do.sub(wide, centre, "differences"), rest
    else:
        # The zero point is 0.
        centre, more, differences = b.graph.constant([[[[0]]]], DType.INT32), None, wide
    high = do.right(differences, 8, "high")
    low = do.sub(differences, do.left(high, 8, "whole"), "low")
    squares, middle, highest = (
        _reduced(b, _product(b, left, right, "squares"), "squares")
        for left, right in ((low, low), (high, low), (high, high))
    )
    return _Statistics(centre, more, None, squares, middle, highest, differences)


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
    # With so many bits behind the point rest^2 / n, rest being n/2 + 1 at most, has 29.
    fraction = 29 - math.ceil(math.log2(size / 4 + 2))
    if found.high is None:
        # `low` is below 2^29: the squares are 2^28 at most, and so is eps. It becomes 2^29 at most.
        places = do.do(Minimum(), do.sub(do.zeros(low), 3, "places"), fraction, "places")
        total = do.left(low, places, "total")
    else:
        # Neither 2^16 * high nor `low` becomes more than 2^27; the sum is 4.25 times as much at most, as
        # |2^9 high * low| is at most 2^16 high^2. It is a quarter of the larger one at least.
        assert found.middle is not None
        zeros = do.zeros(found.high)
        # Of 0 there are 16 more.
        more = do.left(do.do(ArithmeticRightShift(), zeros, 5, "none"), 4, "none")
        upper = do.add(do.add(zeros, more, "upper"), dropped - 16, "upper")
        places = do.sub(do.do(Minimum(), upper, do.zeros(low), "places"), 5, "places")
        places = do.do(Minimum(), places, fraction, "places")
        total = do.shifted(low, places, "low")
        for part, bits in ((found.middle, 9), (found.high, 16)):
            total = do.add(total, do.shifted(part, do.add(places, bits - dropped, "places"), "part"), "total")
    # What is missing: the fraction of eps, and less rest^2 / n, which is half of the sum at most.
    missing: Tensor | int = math.floor((eps - math.floor(eps)) * (1 << fraction))
    if found.rest is not None:
        square = do.mul(found.rest, found.rest, "square")
        missing = do.sub(missing, b.rescaled(square, [2.0 ** (fraction - dropped) / size], name="part"), "missing")
    if missing != 0:
        down = do.do(Minimum(), do.sub(fraction, places, "down"), 31, "down")
        total = do.add(total, do.right(missing, down, "missing"), "total")
    # Below 2^30, so that there are two leading zeros at least; 0 if all is 0.
    half = do.do(ArithmeticRightShift(), do.add(places, do.sub(do.zeros(total), 1, "more"), "sum"), 1, "half")
    again = do.sub(do.add(half, half, "even"), places, "places")
    mantissa = do.do(Maximum(), do.left(total, again, "mantissa"), 1 << 29, "mantissa")
    # A little is left for what rounding makes less of the smallest.
    least = math.floor((29 - math.log2(largest)) / 2)
    most = math.floor((31 - math.log2(max(eps, 2.0 ** -(1 + dropped)) * 0.9)) / 2)
    return _Root(_inverse_root(b, mantissa), do.do(Minimum(), half, most, "half"), least, most, dropped)


def _inverse_root(b: Lowering, x: Tensor) -> Tensor:
    """1 / sqrt of numbers from 1/4 to 1 with 31 bits: 1 to 2 with 29.

    A table of int8 has it to 0.6 %; Newton's step, r * (3 - x * r^2) / 2, to 6e-5, and the next to 5e-9.
    """
    do = _Arithmetic(b)
    index = b.rescaled(x, [2.0**-23], output_zero=-128, dtype=DType.INT8, name="index")
    points = np.maximum(np.arange(256), 64) / 256
    unit = 127.5
    entries = b.tabled(index, np.rint(unit / np.sqrt(points)) - 128, "root")
    # RESCALE gives 29 bits at most.
    bits = _ROOT_BITS - 1
    root = b.rescaled(entries, [2.0**bits / unit], zero_point=-128, name="root")
    for _ in range(2):
        square = do.mul(root, root, "square", shift=2 * bits - 28)
        error = do.sub(3 << 28, do.mul(square, x, "one", shift=31), "error")
        # 2 * 2^28 of the error are 1: one bit more.
        root = do.mul(root, error, "root", shift=bits)
        bits = _ROOT_BITS
    return root


# -- the result ------------------------------------------------------------------------------------------------------


def _normalized(b: Lowering, norm: _Norm, result: Result) -> Tensor:
    """The rows, normalized, as the integers of a result.

    Its steps are a power of two of those that come before, so that the last sum gives them at once.
    """
    do = _Arithmetic(b)
    found = (_statistics8 if norm.before.dtype == DType.INT8 else _statistics16)(b, norm)
    root = _root(b, norm, found)
    if norm.before.dtype == DType.INT8 and root.most - root.least <= _SPREAD:
        ready, factor, shift, unit = _by_factors(b, norm, found, root)
    else:
        ready, factor, shift, unit = _by_places(b, norm, found, root)
    # A difference over sqrt(W) is 1 at most: 2^30 here.
    unit *= math.sqrt(norm.size) * 2.0 ** (shift - _ROOT_BITS - 15.5 - root.dropped / 2)
    affine = _affine(norm, unit, result.scale.scale)
    if affine.gain != 1:
        factor = b.rescaled(factor, [affine.gain], name="factor")
    x = do.mul(ready, factor, "normal", shift=shift)
    if affine.weight is not None:
        x = do.mul(x, _quick(b, affine.weight, "weight"), "weighted", shift=_MOST_SHIFTED)
    x = do.add(x, _quick(b, affine.bias, "bias"), "sum")
    return b.stored_as(x, [result.scale.scale * 2.0**-affine.bits], result)


def _by_factors(b: Lowering, norm: _Norm, found: _Statistics, root: _Root) -> tuple[Tensor, Tensor, int, float]:
    """Differences, a factor for each row, how far their products are shifted, and the unit: root * 2^half is 1.

    All rows have one shift: the factors of those that vary most have 14 bits, and 20 of those that vary as usual.
    """
    do = _Arithmetic(b)
    bits = _WIDE_BITS - _DIFFERENCE[norm.before.dtype]
    zero = 0 if norm.centred else norm.before.zero_point
    x = b.reshaped(_widened(b, norm.rows, bits, zero), norm.shape)
    if found.rest is not None:
        assert found.sums is not None
        x = do.sub(x, b.rescaled(found.sums, [2.0**bits / norm.size], name="mean"), "centred")
    factor = do.right(root.root, do.sub(root.most, root.half, "places"), "factor")
    # The product is d / sqrt(W) * 2^(bits + 44.5 - most + dropped / 2), and becomes 2^30 at most: d is sqrt(W) at most,
    # and, where eps is large, 2^8, when sqrt(W) is 2^(14.5 - most + dropped / 2) at least.
    shift = min(math.ceil(bits + 14.5 - root.most), bits + _DIFFERENCE[norm.before.dtype])
    return x, factor, shift, 2.0 ** (root.most - bits)


def _by_places(b: Lowering, norm: _Norm, found: _Statistics, root: _Root) -> tuple[Tensor, Tensor, int, float]:
    """The same with differences times 2^half, so that the factors need not be shifted.

    d * 2^(half - dropped / 2) is 2^15.5 at most, as d is sqrt(W) at most, and half is `most` at most. With the bits
    behind the point that leaves room for, the whole has 29 bits, and the shift is 29 at most.
    """
    do = _Arithmetic(b)
    width = min(15.5 + root.dropped / 2, _DIFFERENCE[norm.before.dtype] + root.most) - root.least
    bits = math.floor(_WIDE_BITS - width)
    whole = found.differences
    if whole is None:
        whole = do.sub(_widened(b, norm.rows, 0, 0), found.centre, "differences")
    places = do.add(root.half, bits - root.least, "places")
    x = do.left(b.reshaped(whole, norm.shape), places, "shifted")
    if found.rest is not None:
        part = b.rescaled(found.rest, [2.0**_WIDE_BITS / norm.size], name="part")
        part = do.right(part, do.sub(_WIDE_BITS, places, "places"), "part")
        x = do.sub(x, part, "centred")
    return x, root.root, _ROOT_BITS, 2.0 ** (root.least - bits)


@dataclass(frozen=True)
class _Affine:
    """What is done to normalized numbers: times `gain`, which the root takes, times weight * 2^-31, plus bias.

    The sum has `bits` behind the point of the result's steps.
    """

    gain: float
    weight: Array | None
    bias: Array
    bits: int


def _affine(norm: _Norm, unit: float, step: float) -> _Affine:
    """For numbers of 30 bits; `unit` is what 1 of these stands for, `step` what one of the result's does.

    The gain is 1/2 at most: the numbers, and those times the weight, are 2^29 at most, and so are biases. Where the
    steps are so small that all but nothing is beyond the result's range, larger ones do: RESCALE wants less than 2^28.
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


def _widened(b: Lowering, x: Tensor, bits: int, zero_point: int) -> Tensor:
    """int8 or int16 as int32, with so many bits behind the point.

    A depthwise convolution is the fastest, but on the U65; for int16 a product.
    """

    def by_channels(b: Builder, x: Tensor) -> Tensor:
        size = x.shape[3]
        channels = max(part for part in range(1, min(size, _CHANNELS) + 1) if size % part == 0)
        image = b.reshaped(x, (1, x.size // channels, 1, channels))
        ones = np.ones((channels, 1, 1, 1), np.int8)
        settings = ((1, 1), (0, 0, 0, 0), (1, 1), channels, image.shape[1:3])

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.rescaled(sums, [2.0**bits], name="wide")

        wide = convolved(b, image, Scale(1.0, zero_point), ones, np.ones(channels), None, *settings, finish)
        return b.reshaped(wide, x.shape)

    def by_product(b: Builder, x: Tensor) -> Tensor:
        one = b.graph.constant([[[[1 << bits]]]], x.dtype)
        return b.emit(Mul(), (x, one, b.number(0)), x.shape, DType.INT32, "wide")

    def plain(b: Builder, x: Tensor) -> Tensor:
        return b.rescaled(x, [2.0**bits], zero_point=zero_point, name="wide")

    ways = [by_channels if x.dtype == DType.INT8 else by_product, plain]
    return b.cheapest(x, ways, ("widen", bits, zero_point))


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
    made = _normalized(b, _Norm(rows, rows.shape, before, eps, weight, shift, centred), result)
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
    shape = (1, samples * groups, each, count(sizes))
    rows = b.reshaped(b.contiguous(value), (1, samples * groups, 1, each * count(sizes)))
    made = _normalized(b, _Norm(rows, shape, before, float(argument(node, "eps")), weight, bias), result)
    return Value.dense(b.reshaped(made, value.shape))


EMITTERS: dict[str, Emitter] = {
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    "aten.instance_norm.default": _instance_norm,
}
