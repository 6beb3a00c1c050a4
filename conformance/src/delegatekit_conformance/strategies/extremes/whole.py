"""Written examples of whole numbers at the borders of mantissas: beside numbers of Python's, and beside one another.

float16 has all integers up to 2**11 and float32 up to 2**24; beyond, it has some. A backend that compares, clamps or
computes integers as floats is right for nearly all numbers, and wrong for those next to these borders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

import torch

from ...recipe import Recipe, Ref
from .rows import row
from .sketch import HurtfulSketch

_LOW, _HIGH = -(2**31), 2**31 - 1
#: The borders and their neighbours, of either sign.
_BORDERS = tuple(
    sorted(
        number
        for border in (2**11, 2**24, 2**30, _HIGH)
        for number in (sign * border + more for sign in (1, -1) for more in (-1, 0, 1))
        if _LOW <= number <= _HIGH
    )
)
#: Those, what is beside them in turn, and some ordinary ones.
_ALL = tuple(
    sorted(
        {number + more for number in _BORDERS for more in (-1, 0, 1) if _LOW <= number + more <= _HIGH}
        | {-127, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100}
    )
)
#: Numbers by which others are divided: some leave quotients beyond all mantissas.
_DIVISORS = (-10, -7, -3, 3, 7, 10, *_BORDERS)
#: Some results, fewer than one example may have.
_FEW = tuple(number for number in _BORDERS if abs(number) not in (2**11 - 1, 2**11, 2**30 - 1, 2**30))
#: Integers of 64 bits, which many backends narrow, have the same numbers: an example of each operator, beside those
#: of 32 bits.
_TYPES = ("int32", "int64")
#: On the way to what remains of them, no product of a quotient is beyond 32 bits: of int64, that may be refused.
_MODERATE = (-(2**30), 2**30)


def _x(sketch: HurtfulSketch, dtype: str, numbers: Iterable[int] = _ALL, constant: bool = False) -> Ref:
    literal = tuple(numbers)
    return sketch.tensor((len(literal),), dtype, values=("literal", literal), constant=constant, layouts=False)


def _each(*operators: str) -> Callable[[Callable[[HurtfulSketch, str, str], Recipe]], None]:
    """Register a function, which gets a type of integers, too, for each of these operators and both types."""

    def register(draw: Callable[[HurtfulSketch, str, str], Recipe]) -> None:
        for dtype in _TYPES:
            row(*operators, dtypes=("int32",))(_typed(draw, dtype))

    return register


def _typed(draw: Callable[[HurtfulSketch, str, str], Recipe], dtype: str) -> Callable[[HurtfulSketch, str], Recipe]:
    @wraps(draw)
    def typed(sketch: HurtfulSketch, name: str) -> Recipe:
        return draw(sketch, name, dtype)

    return typed


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@_each(*(f"aten.{name}.Scalar" for name in _COMPARISONS), "aten.clamp_min.default", "aten.clamp_max.default")
def _beside_numbers(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """All numbers beside each border."""
    x = _x(sketch, dtype)
    return sketch.recipe(*(sketch.call(name, x, number) for number in _BORDERS), exact=True)


@_each(*(f"aten.{name}.Tensor" for name in _COMPARISONS), "aten.maximum.default", "aten.minimum.default")
def _beside_one_another(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """All numbers beside each border, which are an input, a constant, and one element of either kind."""
    x, column = _x(sketch, dtype), (len(_BORDERS), 1)
    others = [
        sketch.tensor(column, dtype, values=("literal", _BORDERS), constant=constant, layouts=False)
        for constant in (False, True)
    ]
    others += [_x(sketch, dtype, (2**24,), constant) for constant in (False, True)]
    made = [sketch.call(name, *pair) for other in others for pair in ((x, other), (other, x))]
    return sketch.recipe(*made, exact=True)


@_each("aten.clamp.default", "aten.clamp.Tensor")
def _clamped(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Numbers clamped below, above, and between neighbours."""
    x = _x(sketch, dtype)
    bounds: Iterator[tuple[int | None, int | None]] = (
        pair
        for number in (2**11, 2**24, -(2**24), 2**24 + 1, -(2**24) - 1, 2**30 + 1, -(2**30) - 1, _HIGH - 1, _LOW + 1)
        for pair in ((number, None), (None, number), (number - 1, number + 1))
    )
    made = []
    for low, high in bounds:
        ends: list[Any] = [low, high]
        if name == "aten.clamp.Tensor":
            if low is not None and high is not None:
                continue  # more tensors than one example may have
            ends = [None if end is None else _x(sketch, dtype, (end,), constant=True) for end in ends]
        made.append(sketch.call(name, x, *ends))
    return sketch.recipe(*made, exact=True)


@_each("aten.hardtanh.default")
def _hard(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Numbers between neighbours."""
    x = _x(sketch, dtype)
    pairs = ((-(2**24) - 1, 2**24 + 1), (2**24 - 1, 2**24 + 1), (_LOW + 1, _HIGH - 1), (2**11, 2**30 + 1))
    return sketch.recipe(*(sketch.call(name, x, *pair) for pair in pairs), exact=True)


#: Operator -> the exact result of two numbers.
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "rsub": lambda x, y: y - x,
    "mul": lambda x, y: x * y,
}


def _within(name: str, number: int) -> tuple[int, ...]:
    """The numbers whose result with this one is no more than 32 bits: PyTorch defines no others for backends."""
    result = _ARITHMETIC[name.split(".")[1]]
    return tuple(one for one in _ALL if _LOW <= result(one, number) <= _HIGH)


@_each(*(f"aten.{name}.Scalar" for name in _ARITHMETIC), "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor")
def _computed(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Sums, differences and products with each border, as programs have them: a number in a tensor's place, too."""
    made = [sketch.call(name, _x(sketch, dtype, _within(name, number)), number) for number in _BORDERS]
    return sketch.recipe(*made, exact=True)


@_each("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor")
def _computed_of_two(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Likewise of two tensors, of which one may be a constant, and of one times a number."""
    made = []
    for place, number in enumerate(_FEW):
        x = _x(sketch, dtype, _within(name, number))
        made.append(sketch.call(name, x, _x(sketch, dtype, (number,), constant=bool(place % 2))))
    if "mul" not in name:
        small = _x(sketch, dtype, (-63, -1, 0, 1, 2, 63))
        made += [sketch.call(name, small, small, alpha=alpha) for alpha in (2**24 + 1, -(2**24) - 1)]
    return sketch.recipe(*made, exact=True)


def _divided_numbers(dtype: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers that are divided, and those that divide."""
    if dtype == "int32":
        return _ALL, _DIVISORS
    low, high = _MODERATE
    return tuple(n for n in _ALL if low <= n <= high), tuple(n for n in _DIVISORS if low <= n <= high)


_DIVIDING = {"aten.div.Scalar_mode": ("floor", "trunc"), "aten.div.Tensor_mode": ("floor", "trunc")}


@_each(*(f"aten.{name}.Scalar" for name in ("remainder", "fmod", "floor_divide")), "aten.div.Scalar_mode")
def _divided_by_numbers(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Quotients and what remains, by each border and by small numbers."""
    numbers, divisors = _divided_numbers(dtype)
    x = _x(sketch, dtype, numbers)
    made = []
    for place, number in enumerate(divisors):
        mode = {"rounding_mode": ("floor", "trunc")[place % 2]} if name in _DIVIDING else {}
        made.append(sketch.call(name, x, number, **mode))
    return sketch.recipe(*made, exact=True)


@_each("aten.remainder.Tensor", "aten.fmod.Tensor", "aten.floor_divide.default", "aten.div.Tensor_mode")
def _divided(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Likewise by tensors."""
    numbers, divisors = _divided_numbers(dtype)
    x, column = _x(sketch, dtype, numbers), (len(divisors), 1)
    made = []
    for constant in (False, True):
        y = sketch.tensor(column, dtype, values=("literal", divisors), constant=constant, layouts=False)
        for mode in _DIVIDING.get(name, ("",)):
            made.append(sketch.call(name, x, y, **({"rounding_mode": mode} if mode else {})))
    return sketch.recipe(*made, exact=True)


@_each("aten.masked_fill.Scalar", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def _chosen_numbers(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Each border in the place of some elements."""
    x = _x(sketch, dtype)
    mask = sketch.tensor((len(_ALL),), "bool", values=("integers", 0, 1), layouts=False)
    made = []
    for number in _BORDERS:
        beside = (number, x) if "ScalarSelf" in name else (x, number)
        made.append(sketch.call(name, *((x, mask, number) if "fill" in name else (mask, *beside))))
    return sketch.recipe(*made, exact=True)


@_each("aten.masked_fill.Tensor", "aten.where.self")
def _chosen(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Likewise, of tensors."""
    x = _x(sketch, dtype)
    mask = sketch.tensor((len(_ALL),), "bool", values=("integers", 0, 1), layouts=False)
    made = []
    for place, number in enumerate(_FEW):
        y = sketch.tensor((), dtype, values=("literal", (number,)), constant=bool(place % 2), layouts=False)
        made.append(sketch.call(name, *((x, mask, y) if "fill" in name else (mask, x, y))))
    if "where" in name:
        made.append(sketch.call(name, mask, x, _x(sketch, dtype, _ALL[::-1])))
    return sketch.recipe(*made, exact=True)


@_each("aten.full_like.default", "aten.fill.Scalar", "aten.new_full.default", "aten.constant_pad_nd.default")
def _filled(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Tensors full of each border, and elements added that are it."""
    x = _x(sketch, dtype)
    before: Sequence[Any] = {"aten.new_full.default": ([3],), "aten.constant_pad_nd.default": ([1, 2],)}.get(name, ())
    return sketch.recipe(*(sketch.call(name, x, *before, number) for number in _BORDERS), exact=True)


@row("aten.where.Scalar", dtypes=("bool",))
def _chosen_of_two(sketch: HurtfulSketch, name: str) -> Recipe:
    """A border or its neighbour."""
    mask = sketch.tensor((7,), values=("integers", 0, 1), layouts=False)
    return sketch.recipe(*(sketch.call(name, mask, number, number - 1) for number in _FEW if number > _LOW), exact=True)


#: Operator -> arguments behind a tensor of (number of borders, 3): each border and its neighbours in any order.
_ALONG: Mapping[str, tuple[Any, ...]] = {
    **{f"aten.{name}.default": ([1],) for name in ("amax", "amin")},
    **{f"aten.{name}": (1,) for name in ("max.dim", "min.dim", "argmax.default", "argmin.default")},
    **{f"aten.{name}.default": (1,) for name in ("cummax", "cummin")},
    "aten.sort.default": (1,),
    "aten.topk.default": (2, 1),
    "aten.argsort.default": (1,),
    "aten.kthvalue.default": (2, 1),
    "aten.median.dim": (1,),
}
_PAIRS = ("max.dim", "min.dim", "cummax", "cummin", "sort.default", "topk", "kthvalue", "median")


@_each(*_ALONG)
def _ordered(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Neighbours put in order, or the largest of them found."""
    made = []
    for first, second, third in ((-1, 0, 1), (1, -1, 0), (0, 1, -1)):
        near = [number for number in _BORDERS if _LOW < number < _HIGH]
        numbers = tuple(number + more for number in near for more in (first, second, third))
        x = sketch.tensor((len(near), 3), dtype, values=("literal", numbers), layouts=False)
        found = sketch.call(name, x, *_ALONG[name])
        is_pair = any(part in name for part in _PAIRS) and "arg" not in name
        made += [Ref(found.name, 0), Ref(found.name, 1)] if is_pair else [found]
    return sketch.recipe(*made, exact=True)


@_each("aten.abs.default", "aten.neg.default", "aten.sign.default", "aten.relu.default", "aten.bitwise_not.default")
def _of_one(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Functions that change no digits."""
    return sketch.recipe(sketch.call(name, _x(sketch, dtype, _ALL[1:])), exact=True)


@_each(*(f"aten.bitwise_{name}.Scalar" for name in ("and", "or", "xor")))
def _bits(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """Digits beside those of each border."""
    x = _x(sketch, dtype)
    return sketch.recipe(*(sketch.call(name, x, number) for number in _BORDERS), exact=True)


@_each("aten._to_copy.default")
def _other_type(sketch: HurtfulSketch, name: str, dtype: str) -> Recipe:
    """The same numbers in the other type of integers."""
    other = torch.int64 if dtype == "int32" else torch.int32
    return sketch.recipe(sketch.call(name, _x(sketch, dtype), dtype=other), exact=True)
