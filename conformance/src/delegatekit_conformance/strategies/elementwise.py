"""Operators that work element by element and compute: functions of one number, arithmetic, bits and logic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..recipe import Recipe, Ref, Values
from .operands import (
    EVERY,
    EVERY_INTEGER,
    EVERY_NUMBER,
    FLOATS_AND_SOME,
    any_values,
    beyond,
    divisors,
    exact_numbers,
    integers,
    large,
    multiples,
    pair,
    scalar,
)
from .registry import operator
from .sketch import ALL_FLOATS, Sketch

# Functions of one number. Where a function crosses zero its relative error is boundless, so that the numbers keep away
# from there, but for zeros at 0, where all of it is as exact as elsewhere.

_TINY: Values = ("among", (2.0**-10, -(2.0**-11), 3 * 2.0**-12, -5 * 2.0**-12))
_TURNS = multiples(0.5, -10, 10)  # no multiple of a quarter turn is near any of these

#: Where exponentials vanish, and where products of powers of two leave their range; float16 has all of them.
_FAR_BELOW: Values = ("among", (1.0, 0.0, -1.0, -12.0, -20.0, -50.0, -90.0, -104.0, -200.0, -1000.0, -60000.0))
#: The same on both sides, for functions that saturate.
_FAR: Values = ("among", (0.5, -1.0, *(sign * far for far in (12.0, 50.0, 90.0, 200.0, 60000.0) for sign in (1, -1))))

#: Enough elements that some are near: alone, a vanishing number is one that devices flush to zero.
_FAR_SHAPE = (2, 33)

#: Function -> kinds of numbers that are drawn for floats.
FUNCTIONS: dict[str, tuple[Values, ...]] = {
    "acos": (("uniform", -0.95, 0.95), ("among", (-1.0, 1.0, 0.5, 1.5))),
    "acosh": (("uniform", 1.25, 20.0), ("among", (1.0, 2.0, 0.5)), ("among", (2.0, 90.0, 1000.0, 60000.0))),
    "asin": (("uniform", -0.95, 0.95), ("among", (-1.0, 1.0, 0.0, 1.5)), _TINY),
    "asinh": (("uniform", -20.0, 20.0), _TINY, _FAR),
    "atan": (("normal",), ("uniform", -50.0, 50.0), _TINY, _FAR),
    "atanh": (("uniform", -0.95, 0.95), ("among", (-1.0, 1.0, 0.0, 1.5)), _TINY),
    "digamma": (("uniform", 2.0, 8.0), ("among", (1.0, 0.5, 3.0))),
    "cos": (("uniform", -1.25, 1.25), _TURNS),
    "cosh": (("normal",), ("uniform", -8.0, 8.0)),
    "erf": (("normal",), ("uniform", -6.0, 6.0), _TINY, _FAR),
    "erfc": (("normal",), ("uniform", -2.0, 2.0), _FAR),
    "exp": (("normal",), ("uniform", -5.0, 5.0), ("among", (0.0, -9.0, 11.0, 12.0, 1.0)), _FAR_BELOW),
    "exp2": (("normal",), ("uniform", -5.0, 5.0), multiples(1.0, -10, 10), _FAR_BELOW),
    "expm1": (("normal",), ("uniform", -5.0, 5.0), _TINY, _FAR_BELOW),
    "erfinv": (("uniform", -0.9, 0.9), ("among", (-1.0, 1.0, 0.0, 1.5)), _TINY),
    "i0": (("normal",), ("uniform", -5.0, 5.0)),
    "lgamma": (("uniform", 3.0, 20.0), ("among", (0.5, 0.25, 1.0, 2.0, 4.0))),
    "log": (("uniform", 0.1, 0.9), ("uniform", 1.25, 100.0), ("among", (2.0**-14, 1e-3, 1000.0, 60000.0))),
    "log10": (("uniform", 0.1, 0.9), ("uniform", 1.25, 100.0), ("among", (1.0, 10.0, 100.0, 1000.0))),
    "log1p": (("uniform", -0.9, 5.0), _TINY, ("among", (-1.0, 0.0, 3.0))),
    "log2": (("uniform", 0.1, 0.9), ("uniform", 1.25, 100.0), ("among", (0.25, 0.5, 1.0, 2.0, 8.0, 1024.0))),
    "reciprocal": (("uniform", 0.1, 10.0), divisors("float32"), ("among", (0.0, -0.0, 2.0, -4.0))),
    "rsqrt": (("uniform", 0.1, 10.0), ("among", (0.0, 0.25, 1.0, 4.0, 9.0)), ("uniform", 1e-4, 1e-3)),
    "sigmoid": (("normal",), ("uniform", -8.0, 8.0), ("among", (0.0, 50.0, -1.0)), _FAR),
    "sin": (("uniform", -1.5, 1.5), _TURNS, _TINY),
    "sinh": (("normal",), ("uniform", -8.0, 8.0), _TINY),
    "sqrt": (("uniform", 0.0, 10.0), ("among", (0.0, -0.0, 0.25, 1.0, 4.0, 1024.0)), ("uniform", 1e-4, 1e-3)),
    "square": (("normal",), ("among", (200.0, -16.0, 0.5, 0.0)), ("uniform", 0.01, 0.02)),
    "tan": (("uniform", -1.25, 1.25), _TINY),
    "tanh": (("normal",), ("uniform", -10.0, 10.0), _TINY, _FAR),
}


#: Exponentials: an implementation by powers of two rounds x * log2(e) first, which changes the result by x roundings.
#: Sines: whole turns are taken from an angle first, which changes the result as much.
STEEP = ("exp", "exp2", "expm1", "sinh", "cosh", "sin", "cos")


@operator(*(f"aten.{name}.default" for name in FUNCTIONS), dtypes=FLOATS_AND_SOME)
def _function(sketch: Sketch, name: str) -> Recipe:
    kinds = FUNCTIONS[name.split(".")[1]]
    if not sketch.is_float:
        # The result is float32; poles and numbers outside of the domain are among them.
        values: Values = ("integers", 0, 1 if sketch.dtype == "bool" else 5)
        if sketch.dtype == "int64":
            values = ("integers", -5, 5)
    else:
        values = sketch.choice(kinds)
        if sketch.rarely():
            values = ("special", -3, 3)
    x = sketch.tensor(_shape(sketch, values), values=values)
    sketch.call(name, x)
    return sketch.recipe(ill_conditioned=name.split(".")[1] in STEEP)


def _shape(sketch: Sketch, values: Values) -> tuple[int, ...]:
    shape = sketch.shape()  # drawn in any case: an example with fewer draws is smaller to Hypothesis
    return _FAR_SHAPE if values in (_FAR, _FAR_BELOW) else shape


#: Functions whose results are exact: the values that they choose among, or round to.
_EXACT = ("abs", "ceil", "floor", "neg", "round", "sgn", "sign", "trunc")


@operator("aten.sign.default", "aten.sgn.default", dtypes=EVERY)
@operator(*(f"aten.{name}.default" for name in _EXACT if name not in ("sign", "sgn")), dtypes=EVERY_NUMBER)
def _exact_function(sketch: Sketch, name: str) -> Recipe:
    values: Values = any_values(sketch)
    if sketch.is_float:
        # Rounding modes differ in halves; large numbers are whole.
        kinds: list[Values] = [("normal",), ("special",), multiples(0.5, -4.5, 4.5), ("uniform", -60000.0, 60000.0)]
        if name == "aten.round.default":
            kinds.append(("among", (0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.25, 0.75)))
        values = sketch.choice(kinds)
    x = sketch.tensor(sketch.shape(), values=values)
    sketch.call(name, x)
    return sketch.recipe(exact=True)


@operator("aten.sinc.default", dtypes=ALL_FLOATS)
def _sinc(sketch: Sketch, name: str) -> Recipe:
    # At whole numbers but 0 it is zero, but for the rounding of pi.
    values = sketch.choice((("uniform", -0.9, 0.9), ("among", (0.0, 0.5, 1.5, -2.5))))
    sketch.call(name, sketch.tensor(sketch.shape(), values=values))
    return sketch.recipe(depth=2)


@operator("aten.frac.default", dtypes=ALL_FLOATS)
def _frac(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), values=sketch.choice((multiples(0.25, -5, 5), ("normal",))))
    sketch.call(name, x)
    return sketch.recipe(exact=True)


@operator("aten.round.decimals", dtypes=ALL_FLOATS)
def _round_decimals(sketch: Sketch, name: str) -> Recipe:
    # Of tenths, only multiples of a quarter have exact halves; of tens, multiples of 5.
    decimals = sketch.choice((1, 0, -1))
    values = {1: multiples(0.25, -4, 4), 0: multiples(0.5, -4.5, 4.5), -1: multiples(2.5, -40, 40)}[decimals]
    x = sketch.tensor(sketch.shape(), values=values)
    sketch.call(name, x, decimals=decimals)
    return sketch.recipe()


@operator("aten.isnan.default", "aten.isinf.default", "aten.isfinite.default", dtypes=EVERY)
@operator("aten.isposinf.default", "aten.isneginf.default", "aten.signbit.default", dtypes=EVERY)
def _is(sketch: Sketch, name: str) -> Recipe:
    values: Values = ("special",) if sketch.is_float else integers(sketch, sketch.dtype)
    sketch.call(name, sketch.tensor(sketch.shape(), values=values))
    return sketch.recipe(exact=True)


@operator("aten.bitwise_not.default", dtypes=EVERY_INTEGER)
@operator("aten.logical_not.default", dtypes=EVERY)
def _not(sketch: Sketch, name: str) -> Recipe:
    values = sketch.choice((("special",), exact_numbers(sketch.dtype))) if sketch.is_float else None
    x = sketch.tensor(sketch.shape(), values=values or integers(sketch, sketch.dtype))
    sketch.call(name, x)
    return sketch.recipe(exact=True)


# Activations


def _activation(sketch: Sketch, values: Values | None = None, *, far: bool = False) -> Ref:
    """The argument of an activation: normal numbers, numbers at the borders, and with `far` those far below."""
    if far and sketch.rarely():
        values = _FAR_BELOW
    elif values is None or sketch.rarely(2):
        values = ("special",) if sketch.rarely() else ("normal",)
    return sketch.tensor(_shape(sketch, values), values=values)


@operator("aten.relu.default", "aten.relu6.default", dtypes=EVERY_NUMBER)
def _relu(sketch: Sketch, name: str) -> Recipe:
    if sketch.is_float:
        x = _activation(sketch, multiples(0.5, -8, 8))
    else:
        x = sketch.tensor(sketch.shape(), values=integers(sketch, sketch.dtype))
    sketch.call(name, x)
    return sketch.recipe(exact=True)


#: Activations without arguments, with the numbers where their pieces meet and how many operators they are made of.
_ACTIVATIONS: dict[str, tuple[Values, int]] = {
    "hardsigmoid": (multiples(0.5, -4, 4), 2),
    "hardswish": (multiples(0.5, -4, 4), 2),
    "log_sigmoid": (("uniform", -8.0, 2.0), 3),
    "mish": (("uniform", -4.0, 8.0), 4),
    "selu": (multiples(0.5, -4, 4), 2),
    "silu": (("uniform", -4.0, 8.0), 2),
}


@operator(*(f"aten.{name}.default" for name in _ACTIVATIONS), dtypes=ALL_FLOATS)
def _plain_activation(sketch: Sketch, name: str) -> Recipe:
    values, depth = _ACTIVATIONS[name.split(".")[1]]
    sketch.call(name, _activation(sketch, values, far=True))
    return sketch.recipe(depth=depth)


@operator("torch.nn.functional.softsign", dtypes=ALL_FLOATS)
def _softsign(sketch: Sketch, name: str) -> Recipe:
    sketch.call(name, _activation(sketch))
    return sketch.recipe(depth=2)


@operator("aten.gelu.default", dtypes=ALL_FLOATS)
def _gelu(sketch: Sketch, name: str) -> Recipe:
    # Further below zero 1 + erf(x) cancels out, and better or worse formulas give different small numbers.
    # Of infinity, eager's vectorized kernel says NaN and its other one infinity.
    kinds: tuple[Values, ...] = (("uniform", -1.0, 8.0), multiples(0.25, -1, 4), ("among", (1.0, 0.0, -1.0, math.nan)))
    values = sketch.choice((*kinds, _FAR))
    x = sketch.tensor(_shape(sketch, values), values=values)
    kwargs = {"approximate": sketch.choice(("tanh", "none"))} if sketch.rarely(2) else {}
    sketch.call(name, x, **kwargs)
    return sketch.recipe(depth=4)


@operator("aten.elu.default", dtypes=ALL_FLOATS)
def _elu(sketch: Sketch, name: str) -> Recipe:
    x = _activation(sketch, multiples(0.5, -4, 4), far=True)
    arguments: list[float] = []
    if sketch.flag():
        arguments.append(sketch.choice((1.0, 0.5, 2.0, 1, 0.0)))
        if sketch.flag():
            arguments.append(sketch.choice((1.0, 1.5, 2, 0.0)))
            if sketch.flag():
                arguments.append(sketch.choice((1.0, 0.5, 2)))
    sketch.call(name, x, *arguments)
    return sketch.recipe(depth=2)


@operator("aten.celu.default", dtypes=ALL_FLOATS)
def _celu(sketch: Sketch, name: str) -> Recipe:
    x = _activation(sketch, multiples(0.5, -4, 4), far=True)
    sketch.call(name, x, *([sketch.choice((1.0, 0.5, 2.0, 3))] if sketch.flag() else []))
    return sketch.recipe(depth=2)


@operator("aten.leaky_relu.default", dtypes=ALL_FLOATS)
def _leaky_relu(sketch: Sketch, name: str) -> Recipe:
    x = _activation(sketch, multiples(0.5, -4, 4))
    sketch.call(name, x, *([sketch.choice((0.25, 0.1, 0.0, 2.0, -0.5, 1))] if sketch.flag() else []))
    return sketch.recipe()


@operator("aten.hardtanh.default", dtypes=(*ALL_FLOATS, "int32", "int64", "int16", "int8"))
def _hardtanh(sketch: Sketch, name: str) -> Recipe:
    if sketch.is_float:
        x = _activation(sketch, multiples(0.5, -4, 4))
        bounds = sketch.choice(((), (-1.0, 1.0), (0.0, 2.0), (-2, 0.5), (0.5, 0.5), (-math.inf, 1.0)))
    else:
        x = sketch.tensor(sketch.shape(), values=integers(sketch, sketch.dtype))
        bounds = sketch.choice(((), (-2, 3), (0, 2), (1, 1)))
    sketch.call(name, x, *bounds)
    return sketch.recipe(exact=True)


@operator("aten.softplus.default", dtypes=ALL_FLOATS)
def _softplus(sketch: Sketch, name: str) -> Recipe:
    # x * beta is exact on the quarters, and so is its comparison with the threshold.
    values = sketch.choice((multiples(0.25, -4, 4), ("among", (25.0, -5.0, 19.0, 21.0)), _FAR_BELOW))
    x = sketch.tensor(_shape(sketch, values), values=values)
    arguments: list[float] = []
    if sketch.flag():
        arguments.append(sketch.choice((1, 2.0, 0.5)))
        if sketch.flag():
            arguments.append(sketch.choice((20, 1.0, 3, sketch.integer(4, 24))))
    sketch.call(name, x, *arguments)
    return sketch.recipe(depth=3)


@operator("aten.logit.default", dtypes=FLOATS_AND_SOME)
def _logit(sketch: Sketch, name: str) -> Recipe:
    # About one half the logarithm crosses zero.
    kinds: tuple[Values, ...] = (("uniform", 0.05, 0.4), ("uniform", 0.6, 0.95), ("among", (0.0, 1.0, 0.25, -1.0, 2.0)))
    x = sketch.tensor(sketch.shape(), values=sketch.choice(kinds) if sketch.is_float else exact_numbers(sketch.dtype))
    sketch.call(name, x, *([sketch.choice((0.25, 0.125, None))] if sketch.flag() else []))
    return sketch.recipe(depth=3)


@operator("aten.threshold.default", dtypes=EVERY_NUMBER)
def _threshold(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), values=exact_numbers(sketch.dtype))
    limits = (0.5, -1.0, 1) if sketch.is_float else (2, 1, 0)
    sketch.call(name, x, sketch.choice(limits), sketch.choice((*limits, 7)))
    return sketch.recipe(exact=True)


@operator("aten.hardshrink.default", "aten.softshrink.default", dtypes=ALL_FLOATS)
def _shrink(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), values=multiples(0.25, -3, 3))
    sketch.call(name, x, *([sketch.choice((0.5, 1, 0.75))] if sketch.flag() else []))
    return sketch.recipe(exact=True)


@operator("aten._prelu_kernel.default", dtypes=ALL_FLOATS)
@operator("aten.prelu.default", dtypes=ALL_FLOATS)
def _prelu(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1 if name == "aten._prelu_kernel.default" else 0)
    x = sketch.tensor(shape, special=True)
    slopes = shape[1] if len(shape) > 1 and sketch.flag() else 1
    if name == "aten.prelu.default":
        weight = sketch.weight((slopes,) if shape or sketch.flag() else ())
    else:
        weight = sketch.weight((1, slopes, *[1] * (len(shape) - 2)) if len(shape) > 1 else (1,))
    sketch.call(name, x, weight)
    return sketch.recipe()


# Arithmetic


def _summand_pair(sketch: Sketch, allowed: Sequence[str], *, exact: bool, swap: bool = True) -> tuple[Ref, Ref]:
    """Operands of a sum; `exact` if it is scaled, so that only the rounding of a product might remain."""
    values = (
        sketch.choice((exact_numbers(sketch.dtype), ("uniform", 0.25, 1.25))) if exact and sketch.is_float else None
    )
    return pair(sketch, values, allowed=allowed, special=True, swap=swap)


def _alpha(sketch: Sketch, *operands: Ref) -> dict[str, Any]:
    """alpha, or nothing: a whole number unless all operands are floats."""
    if not sketch.flag():
        return {}
    kinds = [sketch.dtype_of(operand) for operand in operands]
    if "bool" in kinds and all(kind == "bool" for kind in kinds):
        return {"alpha": sketch.choice((True, 1))}
    if all(kind in ALL_FLOATS for kind in kinds):
        return {"alpha": sketch.choice((2.0, 0.5, 3, 1, 0.0, 1.5))}
    return {"alpha": sketch.choice((2, 3, 1, 0))}


@operator("aten.add.Tensor", dtypes=EVERY)
@operator("aten.sub.Tensor", "aten.rsub.Tensor", dtypes=EVERY_NUMBER)
def _sum(sketch: Sketch, name: str) -> Recipe:
    scaled = sketch.flag()
    x, y = _summand_pair(sketch, EVERY if name == "aten.add.Tensor" else EVERY_NUMBER, exact=scaled)
    sketch.call(name, x, y, **(_alpha(sketch, x, y) if scaled else {}))
    return sketch.recipe()


@operator("aten.add.Scalar", dtypes=EVERY)
@operator("aten.sub.Scalar", "aten.rsub.Scalar", dtypes=EVERY_NUMBER)
def _sum_with_number(sketch: Sketch, name: str) -> Recipe:
    number = scalar(sketch, sketch.dtype)
    values = exact_numbers(sketch.dtype)
    if not isinstance(number, float) and not sketch.is_float:
        values = integers(sketch, sketch.dtype)
    elif sketch.is_float and sketch.rarely(5):
        number = beyond(sketch)
    elif sketch.is_float and sketch.flag():
        values = ("special", -3, 3)
    x = sketch.tensor(sketch.shape(), values=values)
    arguments: list[float | int] = []
    if sketch.dtype != "bool" and sketch.flag():
        arguments.append(sketch.choice((2, 3, 0.5) if sketch.is_float else (2, 3)))
    sketch.call(name, x, number, *arguments)
    return sketch.recipe()


@operator("aten.mul.Tensor", dtypes=EVERY)
def _product(sketch: Sketch, name: str) -> Recipe:
    x, y = pair(sketch, special=True)
    sketch.call(name, x, y)
    return sketch.recipe()


@operator("aten.mul.Scalar", dtypes=EVERY)
def _product_with_number(sketch: Sketch, name: str) -> Recipe:
    number = scalar(sketch, sketch.dtype)
    values = None if sketch.is_float else exact_numbers(sketch.dtype)
    if not sketch.is_float and not isinstance(number, float):
        values = integers(sketch, sketch.dtype)
    elif sketch.is_float and sketch.rarely(5):
        number, values = beyond(sketch), exact_numbers(sketch.dtype)
    x = sketch.tensor(sketch.shape(), values=values, special=True)
    sketch.call(name, x, number)
    return sketch.recipe()


_MODES = ("trunc", "floor", None)


def _dividends(sketch: Sketch, dtype: str, *, zeros: bool) -> tuple[Values, Values]:
    """Dividends and divisors whose quotient is whole, or clearly not; floats may be divided by zero with `zeros`."""
    if dtype == "bool":
        return exact_numbers(dtype), divisors(dtype)
    if dtype not in ALL_FLOATS:
        dividends = large(dtype) if sketch.rarely(3) else exact_numbers(dtype)
        return dividends, divisors(dtype)
    if zeros and sketch.rarely(3):
        return multiples(0.25, -3, 3), ("among", (0.0, -0.0, 1.0, -2.0))
    return multiples(0.25, -6, 6), divisors(dtype)


@operator("aten.div.Tensor", dtypes=EVERY)
def _quotient(sketch: Sketch, name: str) -> Recipe:
    if sketch.flag():
        x, y = pair(sketch, *() if sketch.is_float else (exact_numbers(sketch.dtype),), special=True)
    else:
        first, second = _dividends(sketch, sketch.dtype, zeros=True)
        x, y = pair(sketch, first, second=second, swap=False)
    sketch.call(name, x, y)
    return sketch.recipe()


@operator("aten.div.Tensor_mode", dtypes=EVERY_NUMBER)
def _quotient_with_mode(sketch: Sketch, name: str) -> Recipe:
    mode = sketch.choice(_MODES)
    first, second = _dividends(sketch, sketch.dtype, zeros=True)
    x, y = pair(sketch, first, second=second, allowed=EVERY_NUMBER, swap=False)
    sketch.call(name, x, y, rounding_mode=mode)
    return sketch.recipe(exact=mode is not None)


@operator("aten.floor_divide.default", dtypes=EVERY_NUMBER)
@operator("aten.fmod.Tensor", "aten.remainder.Tensor", dtypes=EVERY_NUMBER)
def _division(sketch: Sketch, name: str) -> Recipe:
    first, second = _dividends(sketch, sketch.dtype, zeros=True)
    x, y = pair(sketch, first, second=second, allowed=EVERY_NUMBER, swap=False)
    if name == "aten.floor_divide.default" and sketch.rarely(4):
        sketch.call(name, scalar(sketch, sketch.dtype), y)  # 7 // y
    else:
        sketch.call(name, x, y)
    return sketch.recipe(exact=True)


@operator("aten.remainder.Scalar_Tensor", dtypes=EVERY_NUMBER)
def _remainder_of_number(sketch: Sketch, name: str) -> Recipe:
    sketch.call(name, scalar(sketch, sketch.dtype), sketch.tensor(sketch.shape(), values=divisors(sketch.dtype)))
    return sketch.recipe(exact=True)


@operator("aten.div.Scalar", "aten.div.Scalar_mode", dtypes=EVERY)
@operator("aten.floor_divide.Scalar", "aten.fmod.Scalar", "aten.remainder.Scalar", dtypes=EVERY_NUMBER)
def _division_by_number(sketch: Sketch, name: str) -> Recipe:
    mode = sketch.choice(_MODES) if name == "aten.div.Scalar_mode" else None
    number = scalar(sketch, sketch.dtype, zero=False)
    if sketch.dtype == "bool":
        number = sketch.choice((2, 1, 1.5))
    elif sketch.is_float and sketch.rarely(6):
        number = 0.0
    elif sketch.is_float and sketch.rarely(4):
        # Quotients by powers of two are exact: a backend may take these alone, up to some of them.
        number = sketch.choice((256.0, 512.0, 2.0**-8, -(2.0**-9)))
    whole = not sketch.is_float and isinstance(number, int)
    values, _ = _dividends(sketch, sketch.dtype, zeros=False)
    x = sketch.tensor(sketch.shape(), values=values if whole or sketch.is_float else exact_numbers(sketch.dtype))
    if name == "aten.div.Scalar_mode":
        sketch.call(name, x, number, rounding_mode=mode)
    else:
        sketch.call(name, x, number)
    return sketch.recipe(exact=mode is not None or "div.S" not in name)


# Powers. Whole powers of small numbers are exact or wrap around; others are of moderate numbers.


@operator("aten.pow.Tensor_Tensor", dtypes=EVERY_NUMBER)
def _power(sketch: Sketch, name: str) -> Recipe:
    if not sketch.is_float:
        exponents = ("integers", 0, 6) if sketch.rarely(3) else ("integers", 0, 3)
        x, y = _powers(sketch, exact_numbers(sketch.dtype), exponents)
    elif sketch.flag():
        x, y = _powers(sketch, ("uniform", 0.3, 3.0), ("uniform", -3.0, 3.0))
    else:
        x, y = _powers(sketch, multiples(0.5, -2, 2), ("among", (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5)))
    sketch.call(name, x, y)
    return sketch.recipe()


def _powers(sketch: Sketch, bases: Values, exponents: Values) -> tuple[Ref, Ref]:
    shape = sketch.shape()
    x = sketch.tensor(shape, values=bases)
    other = sketch.choice(("float32", "int32", "uint8")) if sketch.rarely(5) else sketch.dtype
    if other != sketch.dtype:
        exponents = ("integers", 0, 3)
    y = sketch.tensor(() if sketch.rarely(5) else sketch.broadcast(shape), other, values=exponents)
    return x, y


@operator("aten.pow.Tensor_Scalar", dtypes=EVERY)
def _power_of_number(sketch: Sketch, name: str) -> Recipe:
    if sketch.is_float:
        exponent: float = sketch.choice(
            (2, 2.0, 0.5, 3, -1, -0.5, -2.0, 0, 1, 1.5, 4.0, 2.5, 0.25, -1.5, 5.0, -5, 6.0, 7, 8.0, -8, 9.0)
        )
        kinds: list[Values] = [("uniform", 0.3, 3.0), multiples(0.5, -2, 2)]
        if sketch.rarely(4):
            # Roots, quotients and products may be computed as such: visible at zeros and infinities.
            exponent, kinds = sketch.choice((0.5, -0.5, -1, -2.0, 3, 0, 1.5)), [("special", -2, 2)]
        values = sketch.choice(kinds)
    else:
        exponent = sketch.choice((2, 3, 0, 1, 4, 7, 0.5, 2.0))
        values = ("integers", 0, 1) if sketch.dtype == "bool" else ("integers", 0, 5)
        if isinstance(exponent, int) and sketch.dtype not in ("bool", "uint8"):
            values = ("integers", -5, 5)
    x = sketch.tensor(sketch.shape(), values=values)
    sketch.call(name, x, exponent)
    return sketch.recipe()


@operator("aten.pow.Scalar", dtypes=EVERY)
def _number_to_power(sketch: Sketch, name: str) -> Recipe:
    if sketch.is_float:
        base: float = sketch.choice((2, 2.0, 0.5, 3, 1.5, 1, 0.0, -2.0))
        whole = base <= 0 or sketch.flag()
        values: Values = ("among", (0.0, 1.0, 2.0, 3.0, -1.0)) if whole else ("uniform", -3.0, 3.0)
    else:
        base = sketch.choice((2, 3, 1, 0, 4, 1.5))
        values = ("integers", 0, 1) if sketch.dtype == "bool" else ("integers", 0, 6)
    x = sketch.tensor(sketch.shape(), values=values)
    sketch.call(name, base, x)
    return sketch.recipe()


# Other functions of two numbers


@operator("aten.maximum.default", "aten.minimum.default", "aten.max.other", "aten.min.other", dtypes=EVERY)
@operator("aten.fmax.default", "aten.fmin.default", dtypes=EVERY)
def _extremum(sketch: Sketch, name: str) -> Recipe:
    values = exact_numbers(sketch.dtype) if sketch.flag() else None
    if values is None and sketch.is_float and sketch.flag():
        values = ("special",)  # backends order NaN in different ways
    x, y = pair(sketch, values)
    sketch.call(name, x, y)
    return sketch.recipe(exact=True)


@operator("aten.atan2.default", dtypes=FLOATS_AND_SOME)
def _atan2(sketch: Sketch, name: str) -> Recipe:
    values: Values = exact_numbers(sketch.dtype)
    if sketch.is_float:
        signed: Values = ("among", (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 2.5, -0.5))
        values = sketch.choice((("normal",), signed, ("special",)))
    x, y = pair(sketch, values)
    sketch.call(name, x, y)
    return sketch.recipe()


@operator("aten.hypot.default", dtypes=ALL_FLOATS)
def _hypot(sketch: Sketch, name: str) -> Recipe:
    x, y = pair(sketch, allowed=ALL_FLOATS, special=True)
    sketch.call(name, x, y)
    return sketch.recipe(depth=3)


@operator("aten.ldexp.Tensor", dtypes=ALL_FLOATS)
def _times_power(sketch: Sketch, name: str) -> Recipe:
    # Exponents are integers or such floats: a power of two is exact.
    shape = sketch.shape()
    x = sketch.tensor(shape, special=True)
    dtype = sketch.dtype if sketch.flag() else "int32"
    places = sketch.tensor(sketch.broadcast(shape), dtype, values=("among", (-3, -1, 0, 1, 2, 5)))
    sketch.call(name, x, places)
    return sketch.recipe()


@operator("aten.logaddexp.default", "aten.logaddexp2.default", dtypes=ALL_FLOATS)
def _logaddexp(sketch: Sketch, name: str) -> Recipe:
    # Positive: elsewhere the sum of two exponentials may be near 1, where the logarithm crosses zero.
    kinds: tuple[Values, ...] = (("uniform", 0.0, 4.0), ("among", (100.0, 99.0, 1.0, 0.5)))
    shape = sketch.shape()
    x = sketch.tensor(shape, values=sketch.choice(kinds))
    y = sketch.tensor(sketch.broadcast(shape), values=sketch.choice(kinds))
    sketch.call(name, x, y)
    return sketch.recipe(depth=3)


@operator("aten.heaviside.default", "aten.copysign.Tensor", dtypes=EVERY)
def _sign_function(sketch: Sketch, name: str) -> Recipe:
    # heaviside refuses operands of two dtypes.
    values: Values = ("special", -3, 3) if sketch.is_float and sketch.flag() else exact_numbers(sketch.dtype)
    x, y = pair(sketch, values, allowed=(), swap=False)
    sketch.call(name, x, y)
    return sketch.recipe(exact=True)


@operator("aten.xlogy.Tensor", dtypes=FLOATS_AND_SOME)
def _xlogy(sketch: Sketch, name: str) -> Recipe:
    # 0 * log(0) is 0 here.
    numbers: Values = ("among", (0.0, 0.5, 2.0, 8.0))
    whole: Values = ("integers", 0, 1 if sketch.dtype == "bool" else 4)
    x, y = pair(sketch, numbers if sketch.is_float else whole, allowed=())
    sketch.call(name, x, y)
    return sketch.recipe(depth=2)


@operator("aten.copysign.Scalar", dtypes=EVERY)
def _sign_of_number(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), values=exact_numbers(sketch.dtype))
    sketch.call(name, x, sketch.choice((1.0, -1.0, 0.0, -0.0, -2)))
    return sketch.recipe(exact=True)


@operator("aten.addcmul.default", dtypes=EVERY_NUMBER)
@operator("aten.addcdiv.default", dtypes=ALL_FLOATS)
def _add_product(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    values = sketch.choice((exact_numbers(sketch.dtype), ("uniform", 0.25, 1.25)))
    if not sketch.is_float:
        values = exact_numbers(sketch.dtype)
    x = sketch.tensor(shape, values=values)
    y = sketch.tensor(sketch.broadcast(shape), values=values)
    last: Values = values
    if name == "aten.addcdiv.default":
        last = ("uniform", 0.5, 2.0) if values[0] == "uniform" else ("among", (0.5, 1.0, 2.0, -1.0))
    z = sketch.tensor(sketch.broadcast(shape), values=last)
    numbers = (2.0, 0.5, 1, 0) if sketch.is_float else (2, 3, 1, 0)
    sketch.call(name, x, y, z, **({"value": sketch.choice(numbers)} if sketch.flag() else {}))
    return sketch.recipe(depth=3)


@operator("aten.lerp.Scalar", "aten.lerp.Tensor", dtypes=ALL_FLOATS)
def _lerp(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    # Of one sign: the result is no smaller than its terms.
    x = sketch.tensor(shape, values=("uniform", 0.5, 2.0))
    y = sketch.tensor(sketch.broadcast(shape), values=("uniform", 0.5, 2.0))
    numbers = (0.25, 0.5, 0.75, 0.0, 1.0)
    if name == "aten.lerp.Scalar":
        sketch.call(name, x, y, sketch.choice(numbers))
    else:
        sketch.call(name, x, y, sketch.tensor(sketch.broadcast(shape), values=("among", numbers)))
    return sketch.recipe(depth=3)


# Bounds


@operator("aten.clamp.default", dtypes=EVERY_NUMBER)
def _clamp(sketch: Sketch, name: str) -> Recipe:
    x = _clamped(sketch)
    low, high = _bounds(sketch)
    # With bounds in the wrong order, the result is the upper one.
    arguments = sketch.choice(((low, high), (low,), (None, high), (high, low)))
    sketch.call(name, x, *arguments)
    return sketch.recipe(exact=True)


@operator("aten.clamp_min.default", "aten.clamp_max.default", dtypes=EVERY_NUMBER)
def _clamp_side(sketch: Sketch, name: str) -> Recipe:
    x = _clamped(sketch)
    sketch.call(name, x, sketch.choice(_bounds(sketch)))
    return sketch.recipe(exact=True)


def _clamped(sketch: Sketch) -> Ref:
    kinds = (("normal",), exact_numbers("float32"), ("special",))
    values = sketch.choice(kinds) if sketch.is_float else integers(sketch, sketch.dtype)
    return sketch.tensor(sketch.shape(), values=values)


def _bounds(sketch: Sketch) -> tuple[float, float]:
    if sketch.is_float:
        return sketch.choice(((-1.0, 1.0), (0.0, 1.5), (-2, 1), (0.5, 0.5), (-math.inf, 0.5), (0.0, math.inf)))
    if sketch.dtype == "uint8":
        return sketch.choice(((1, 3), (0, 2), (2, 2)))
    # A float beside integers makes the result a float.
    return sketch.choice(((-1, 2), (0, 3), (2, 2), (-1.5, 2.5), (0.5, 2.0)))


@operator("aten.clamp.Tensor", dtypes=EVERY_NUMBER)
def _clamp_by_tensors(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    values = exact_numbers(sketch.dtype)
    x = sketch.tensor(shape, values=("special", -3, 3) if sketch.is_float and sketch.rarely(3) else values)
    low, high = (sketch.tensor(sketch.broadcast(shape), values=values) for _ in range(2))
    form = sketch.integer(0, 2)
    sketch.call(name, x, None if form == 1 else low, None if form == 2 else high)
    return sketch.recipe(exact=True)


@operator("aten.nan_to_num.default", dtypes=EVERY)
def _nan_to_num(sketch: Sketch, name: str) -> Recipe:
    if not sketch.is_float:
        sketch.call(name, sketch.tensor(sketch.shape(), values=integers(sketch, sketch.dtype)))
        return sketch.recipe(exact=True)
    if sketch.flag():
        # What replaces infinities is the largest number of the dtype, which the oracle's double precision would not
        # be; so the numbers are made from integers, which stay what they are.
        shape = sketch.shape()
        x, y = (sketch.tensor(shape, "int32", values=("integers", low, 2)) for low in (-2, 0))
        dtype = getattr(torch, sketch.dtype)
        floats = [sketch.call("aten._to_copy.default", value, dtype=dtype) for value in (x, y)]
        quotient = sketch.call("aten.div.Tensor", *floats)
        sketch.call(name, quotient, *([sketch.choice((0.0, 1.5, None))] if sketch.flag() else []))
        return sketch.recipe(exact=True)
    x = sketch.tensor(sketch.shape(), values=("special",))
    sketch.call(name, x, sketch.choice((0.0, 1.5, None)), sketch.choice((100.0, 1)), sketch.choice((-100.0, 0)))
    return sketch.recipe(exact=True)


# Bits and logic


@operator(*(f"aten.bitwise_{name}.Tensor" for name in ("and", "or", "xor")), dtypes=EVERY_INTEGER)
def _bits(sketch: Sketch, name: str) -> Recipe:
    x, y = pair(sketch, allowed=EVERY_INTEGER)
    sketch.call(name, x, y)
    return sketch.recipe(exact=True)


@operator(*(f"aten.bitwise_{name}.Scalar" for name in ("and", "or", "xor")), dtypes=EVERY_INTEGER)
def _bits_with_number(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), values=integers(sketch, sketch.dtype))
    numbers: tuple[int, ...] = (5, 3, 1, 0) if sketch.dtype in ("uint8", "bool") else (5, 3, 1, 0, -1, -4)
    sketch.call(
        name, x, sketch.choice((True, False)) if sketch.dtype == "bool" and sketch.flag() else sketch.choice(numbers)
    )
    return sketch.recipe(exact=True)


@operator(*(f"aten.bitwise_{name}.Scalar_Tensor" for name in ("and", "or", "xor")), dtypes=EVERY_INTEGER)
def _number_with_bits(sketch: Sketch, name: str) -> Recipe:
    number = sketch.flag() if sketch.dtype == "bool" else sketch.choice((5, 3, 1, 0))
    sketch.call(name, number, sketch.tensor(sketch.shape(), values=integers(sketch, sketch.dtype)))
    return sketch.recipe(exact=True)


#: The farthest that integers are shifted: to their last bit, or from there.
_LAST_BIT = {"int8": 7, "uint8": 7, "int16": 15, "int32": 31, "int64": 63}


@operator("aten.bitwise_left_shift.Tensor_Scalar", "aten.bitwise_right_shift.Tensor_Scalar", dtypes=EVERY_INTEGER[:-1])
def _shift_by_number(sketch: Sketch, name: str) -> Recipe:
    number = sketch.choice((sketch.integer(0, 6), _LAST_BIT[sketch.dtype]))
    sketch.call(name, sketch.tensor(sketch.shape(), values=integers(sketch, sketch.dtype)), number)
    return sketch.recipe(exact=True)


@operator("aten.bitwise_left_shift.Tensor", "aten.bitwise_right_shift.Tensor", dtypes=EVERY_INTEGER[:-1])
def _shift(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape, values=integers(sketch, sketch.dtype))
    counts = sketch.choice((("integers", 0, 6), ("among", (0, 1, 3, _LAST_BIT[sketch.dtype]))))
    y = sketch.tensor(sketch.broadcast(shape), values=counts, constant=sketch.flag())
    sketch.call(name, x, y)
    return sketch.recipe(exact=True)


@operator(*(f"aten.logical_{name}.default" for name in ("and", "or", "xor")), dtypes=EVERY)
def _logic(sketch: Sketch, name: str) -> Recipe:
    values = exact_numbers(sketch.dtype) if sketch.is_float and sketch.flag() else None
    x, y = pair(sketch, values, special=True)
    sketch.call(name, x, y)
    return sketch.recipe(exact=True)
