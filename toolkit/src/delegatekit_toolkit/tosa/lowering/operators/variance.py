"""Variances of rows of int8 or int16, and 1 / sqrt of them, in integers of 32 bits.

The sum of a row, and that of the squares, are exact. The variance is normalized to 30 bits by its leading zeros; two
Newton steps compute 1 / sqrt from a table's value. So rows have the same relative error, however much they vary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from delegatekit_toolkit.tosa import ArithmeticRightShift, DType, Maximum, Minimum, Mul, ReduceSum, Tensor
from delegatekit_toolkit.tosa.types import Array

from ..arithmetic import Arithmetic
from ..builder import TosaBuilder
from ..filters import Filters, convolved, pointwise
from ..program import ProgramBuilder
from ..values import Scale
from ..windows import Windows

#: Bits of a difference between two integers.
DIFFERENCE: Final = {DType.INT8: 8, DType.INT16: 16}
#: 1 / sqrt of a number from 1/4 to 1 has this many fractional bits; the number itself 31.
ROOT_BITS: Final = 29
#: The maximum bits of eps, in squares of a row's steps; the last bits of larger ones are left out.
_EPS_BITS: Final = 28
#: Channels of the convolution that converts a tensor to int32.
_CHANNELS: Final = 1024


@dataclass(frozen=True)
class Norm:
    """The input of a normalization: a tensor (1, rows, 1, n) along its last axis.

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
        """The number that is added to the sum of the squares."""
        return self.size * self.eps / self.before.scale**2


@dataclass(frozen=True)
class Statistics:
    """Statistics of each row, in steps of the input. All are (1, rows, 1, 1) or, `differences`, the rows.

    The center is `centre` and, if it is the mean, `rest` / n more: `sums` / n together. The squares of the differences
    from `centre` sum up to `low` + 2^9 `middle` + 2^16 `high`.
    """

    centre: Tensor
    rest: Tensor | None
    sums: Tensor | None
    low: Tensor
    middle: Tensor | None = None
    high: Tensor | None = None
    differences: Tensor | None = None


# -- statistics ------------------------------------------------------------------------------------------------------


def _sums(b: ProgramBuilder, x: Tensor) -> Tensor:
    """The sum of each row, exact: 2^15 * 2^14 at most."""

    def by_channels(b: TosaBuilder, x: Tensor) -> Tensor:
        ones = np.ones((1, x.shape[3]), np.int8)
        sums, _ = pointwise(b, x, Scale(1.0, 0, x.dtype), Filters(ones, np.ones(1)))
        return sums if sums.dtype == DType.INT32 else b.rescaled(sums, [1.0], name="sums")

    def plain(b: TosaBuilder, x: Tensor) -> Tensor:
        return _reduced(b, b.rescaled(x, [1.0], name="operand"), "sums")

    return b.cheapest(x, [by_channels, plain], "sums of rows")


def _reduced(b: TosaBuilder, squares: Tensor, name: str) -> Tensor:
    return b.emit(ReduceSum(3), (squares,), (*squares.shape[:3], 1), DType.INT32, name)


def _product(b: ProgramBuilder, left: Tensor, right: Tensor, name: str) -> Tensor:
    return b.emit(Mul(), (left, right, b.number(0)), left.shape, DType.INT32, name)


def _centre(b: ProgramBuilder, norm: Norm, sums: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, rounded, and its remainder times n; or the same for the zero point."""
    do = Arithmetic(b)
    if norm.centred:
        centre = b.rescaled(sums, [1 / norm.size], name="centre")
        return centre, do.sub(sums, do.mul(centre, norm.size, "whole"), "rest")
    zero = norm.before.zero_point
    return b.graph.constant([[[[zero]]]], DType.INT32), do.sub(sums, zero * norm.size, "rest")


def _statistics8(b: ProgramBuilder, norm: Norm) -> Statistics:
    """The squares of the integers themselves are summed up: n * 2^14 at most.

    sum (x - c)^2 = sum x^2 - c * (sum x + rest) with rest = sum x - n * c. Products and sums stay below 2^30: n is 2^14
    at most, and 2^12 if c is the zero point, when x - c has 8 bits and the rest as many as the sum.
    """
    do = Arithmetic(b)
    squares = _reduced(b, _product(b, norm.rows, norm.rows, "squares"), "squares")
    sums = _sums(b, norm.rows)
    centre, rest = _centre(b, norm, sums)
    excess = do.mul(do.add(sums, rest, "twice"), centre, "excess")
    return Statistics(centre, rest if norm.centred else None, sums, do.sub(squares, excess, "total"))


def _statistics16(b: ProgramBuilder, norm: Norm) -> Statistics:
    """Differences of 16 bits and a sign are 256 * high + low, with high from -256 to 256 and low of 8 bits.

    The squares of the differences sum up to n * 2^30 at most; so high^2 to little more than n * 2^14, and so do
    high * low and low^2: 2^29 with n of 2^14.
    """
    do = Arithmetic(b)
    wide = widened(b, norm.rows, 0, 0)
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
    return Statistics(centre, more, None, squares, middle, highest, differences)


def widened(b: ProgramBuilder, x: Tensor, bits: int, zero_point: int) -> Tensor:
    """int8 or int16 as int32, with this many fractional bits.

    A depthwise convolution is the fastest on most devices; for int16 a product.
    """

    def by_channels(b: TosaBuilder, x: Tensor) -> Tensor:
        size = x.shape[3]
        channels = max(part for part in range(1, min(size, _CHANNELS) + 1) if size % part == 0)
        image = b.reshaped(x, (1, x.size // channels, 1, channels))
        ones = np.ones((channels, 1, 1, 1), np.int8)
        filters, windows = Filters(ones, np.ones(channels), groups=channels), Windows((1, 1), (image.shape[1], 1))

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.rescaled(sums, [2.0**bits], name="wide")

        wide = convolved(b, image, Scale(1.0, zero_point), filters, windows, finish)
        return b.reshaped(wide, x.shape)

    def by_product(b: TosaBuilder, x: Tensor) -> Tensor:
        one = b.graph.constant([[[[1 << bits]]]], x.dtype)
        return b.emit(Mul(), (x, one, b.number(0)), x.shape, DType.INT32, "wide")

    def plain(b: TosaBuilder, x: Tensor) -> Tensor:
        return b.rescaled(x, [2.0**bits], zero_point=zero_point, name="wide")

    ways = [by_channels if x.dtype == DType.INT8 else by_product, plain]
    return b.cheapest(x, ways, ("widen", bits, zero_point))


def statistics(b: ProgramBuilder, norm: Norm) -> Statistics:
    """The statistics of each row."""
    return (_statistics8 if norm.before.dtype == DType.INT8 else _statistics16)(b, norm)


# -- the root --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Root:
    """1 / sqrt of each row's sum of squares is `root` * 2^(half - 44.5 - dropped / 2).

    `half` is `most` at most in rows that do not have a single value only.
    """

    root: Tensor
    half: Tensor
    most: int
    dropped: int


def row_roots(b: ProgramBuilder, norm: Norm, found: Statistics) -> Root:
    """Of the sum of squares W, including eps, multiplied by the power of 4 that brings it to 2^29 to 2^31.

    In rows with more than one value W is 1/2 at least. In others the result is multiplied by 0.
    """
    do, size = Arithmetic(b), norm.size
    dropped = max(0, 2 * math.ceil((math.log2(max(norm.eps_in_steps, 1.0)) - _EPS_BITS) / 2))
    eps = norm.eps_in_steps * 2.0**-dropped
    low = found.low if not dropped else b.rescaled(found.low, [2.0**-dropped], name="low")
    low = do.add(low, math.floor(eps), "low")
    # With this many fractional bits rest^2 / n, rest being n/2 + 1 at most, has 29.
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
    # The remainder: the fraction of eps, minus rest^2 / n, which is half of the sum at most.
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
    # Some margin for rounding the smallest down.
    most = math.floor((31 - math.log2(max(eps, 2.0 ** -(1 + dropped)) * 0.9)) / 2)
    return Root(_inverse_root(b, mantissa), do.do(Minimum(), half, most, "half"), most, dropped)


def _inverse_root(b: ProgramBuilder, x: Tensor) -> Tensor:
    """1 / sqrt of numbers from 1/4 to 1 with 31 bits: 1 to 2 with 29.

    An int8 table has it to 0.6 %; Newton's step, r * (3 - x * r^2) / 2, to 6e-5, and the next to 5e-9.
    """
    do = Arithmetic(b)
    index = b.rescaled(x, [2.0**-23], output_zero=-128, dtype=DType.INT8, name="index")
    points = np.maximum(np.arange(256), 64) / 256
    unit = 127.5
    entries = b.tabled(index, np.rint(unit / np.sqrt(points)) - 128, "root")
    # RESCALE returns 29 bits at most.
    bits = ROOT_BITS - 1
    root = b.rescaled(entries, [2.0**bits / unit], zero_point=-128, name="root")
    for _ in range(2):
        square = do.mul(root, root, "square", shift=2 * bits - 28)
        error = do.sub(3 << 28, do.mul(square, x, "one", shift=31), "error")
        # 2 * 2^28 of the error are 1: one bit more.
        root = do.mul(root, error, "root", shift=bits)
        bits = ROOT_BITS
    return root
