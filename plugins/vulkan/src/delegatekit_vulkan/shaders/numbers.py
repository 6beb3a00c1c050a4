"""Numbers that shaders and the code around them share, from which `make shaders` writes `numbers.glsl`.

A member `Unary.ABS` is `UNARY_ABS` in GLSL.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final


class Limit(IntEnum):
    """Sizes that shaders are written for."""

    #: Invocations in a work group of most shaders, along x.
    GROUP = 64
    #: Axes of a tensor that shaders with strides go over, after axes that lie together were joined.
    AXES = 8
    #: The same of where.comp: three operands leave room for fewer.
    WHERE_AXES = 7


class Unary(IntEnum):
    """Functions of one tensor (unary.comp); comparisons are those with a number."""

    ABS, COS, EXP, GELU, GELU_TANH, HARDSHRINK, HARDSWISH, CLAMP, NEG, RELU = range(10)
    SIGMOID, SIN, SQRT, RSQRT, TANH, ROUND, LEAKY_RELU, LOG10, POWER = range(10, 19)
    EQ, NE, LT, LE, GT, GE, IS_ZERO, COMPLEMENT = range(20, 28)
    TO_FLOAT, TO_INT, TO_BOOL = range(30, 33)


class Binary(IntEnum):
    """Functions of two tensors (binary.comp); comparisons have truths as results, those from AND on take integers."""

    ADD, SUB, MUL, DIV, FLOOR_DIV, TRUNC_DIV, POW, MIN, MAX = range(9)
    EQ, NE, LT, LE, GT, GE = range(10, 16)
    AND, OR, XOR, BOTH, EITHER = range(20, 25)


class Reduce(IntEnum):
    """Reductions (reduce.comp); the last two are sums of what is compared with another tensor."""

    SUM, MAX, MIN, SUM_EXPONENTIALS, SUM_SQUARES = range(5)


class Finish(IntEnum):
    """Functions of a sum (reduce.comp): nothing, a quotient, or 1 / sqrt(quotient + epsilon)."""

    NOTHING, QUOTIENT, INVERSE_ROOT = range(3)


class Affine(IntEnum):
    """Operations with a scale and a zero point (affine.comp)."""

    QUANTIZE, DEQUANTIZE, BOTH = range(3)


class Mapping(IntEnum):
    """Mappings of a range of numbers to a scale and a zero point (qparams.comp)."""

    ASYMMETRIC, SYMMETRIC, SYMMETRIC_TO_THE_ENDS = range(3)


class Pool(IntEnum):
    """Poolings (pool.comp): the maximum and where it is, the average with padding that counts."""

    MAXIMUM, POSITION, AVERAGE, PADDED_AVERAGE = range(4)


class Resize(IntEnum):
    """Ways to sample (resize.comp): with CORNERS the middles of the corners stay where they are."""

    NEAREST, BILINEAR, BILINEAR_CORNERS = range(3)


class Rotary(IntEnum):
    """Pairs of elements that are rotated together, and the layout of their angles (rotary.comp)."""

    PAIRS, INTERLEAVED, HALVES = range(3)


_ALL: Final[tuple[type[IntEnum], ...]] = (Limit, Unary, Binary, Reduce, Finish, Affine, Mapping, Pool, Resize, Rotary)


def header() -> str:
    """The numbers in GLSL."""
    return "\n".join(("// Written by `make shaders` from numbers.py. Do not edit.", *_lines())) + "\n"


def _lines() -> Iterator[str]:
    for kind in _ALL:
        yield f"// {kind.__doc__}"
        for item in kind:
            yield f"#define {kind.__name__.upper()}_{item.name} {item.value}u"
