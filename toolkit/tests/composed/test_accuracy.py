"""Every composition against float64, in arithmetic that has nothing but the primitives."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from delegatekit_toolkit.composed import Dialect, activations, angles, functions


def _term(like: Tensor, item: Tensor | float) -> Tensor:
    return item if isinstance(item, Tensor) else torch.tensor(item, dtype=like.dtype)


def _binary(make: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def write(_: object, left: Tensor | float, right: Tensor | float) -> Tensor:
        like = left if isinstance(left, Tensor) else right
        assert isinstance(like, Tensor)
        return make(_term(like, left), _term(like, right))

    return write


def _unary(make: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda _, x: make(x)


def _where(_: object, condition: Tensor, left: Tensor | float, right: Tensor | float) -> Tensor:
    like = left if isinstance(left, Tensor) else right
    assert isinstance(like, Tensor)
    return torch.where(condition, _term(like, left), _term(like, right))


DIGITS = {torch.float32: 24, torch.float16: 11, torch.int32: 0, torch.bool: -1}
BARE: Dialect[Tensor] = Dialect(
    {
        **{
            name: _binary(make)
            for name, make in {
                "add": torch.add,
                "sub": torch.sub,
                "mul": torch.mul,
                "div": torch.div,
                "minimum": torch.minimum,
                "maximum": torch.maximum,
                "lt": torch.lt,
                "le": torch.le,
                "gt": torch.gt,
                "ge": torch.ge,
                "eq": torch.eq,
                "and": torch.logical_and,
                "or": torch.logical_or,
            }.items()
        },
        **{
            name: _unary(make)
            for name, make in {
                "abs": torch.abs,
                "sign": torch.sign,
                "round": torch.round,
                "neg": operator.neg,
                "floor": torch.floor,
                "sqrt": torch.sqrt,
                "exp": torch.exp,
                "log": torch.log,
                "sin": torch.sin,
                "cos": torch.cos,
                "not": torch.logical_not,
            }.items()
        },
        "where": _where,
    },
    lambda x: DIGITS[x.dtype],
)
#: The same with the integers' division, which a target that has integers brings.
WITH_INTEGERS = Dialect(
    {**BARE.primitives, "floor_divide": _binary(lambda x, y: torch.div(x, y, rounding_mode="floor"))}, BARE.digits
)


def computed(make: Callable[..., Any], *operands: Tensor, dialect: Dialect[Tensor] = BARE, **options: Any) -> Tensor:
    """What a composition gives for tensors."""
    result: Tensor = make(*(dialect.number(None, item) for item in operands), **options).value
    return result


def _line(low: float, high: float) -> Tensor:
    return torch.linspace(low, high, 20011, dtype=torch.float64)


def _sizes(low: float, high: float) -> Tensor:
    """Numbers of both signs whose sizes are powers from 10^low to 10^high."""
    sizes = 10.0 ** _line(low, high)
    return torch.cat((-sizes, sizes))


F = torch.nn.functional
_NEAR_ZERO = torch.cat((_sizes(-6, 0), _line(-1, 1)))
_ALL = torch.cat((_sizes(-6, 4), _line(-10, 10)))

#: Name -> composition, what it is in float64, arguments, and the error in units of the last place, which for large
#: arguments of exponentials grows with the argument's rounding.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Tensor], Tensor, float]] = {
    "exp2": (functions.exp2, torch.exp2, _line(-12, 12), 16),
    "tanh": (functions.tanh, torch.tanh, _ALL, 4),
    "sigmoid": (functions.sigmoid, torch.sigmoid, _line(-2, 12), 4),
    "expm1": (functions.expm1, torch.expm1, torch.cat((_NEAR_ZERO, _line(-9, 9))), 8),
    "log1p": (functions.log1p, torch.log1p, torch.cat((_NEAR_ZERO[_NEAR_ZERO > -0.9], _line(0, 1000))), 4),
    "log2": (functions.log2, torch.log2, 10.0 ** _line(-4, 4), 4),
    "log10": (functions.log10, torch.log10, 10.0 ** _line(-4, 4), 4),
    "sinh": (functions.sinh, torch.sinh, torch.cat((_NEAR_ZERO, _line(-10, 10))), 12),
    "cosh": (functions.cosh, torch.cosh, _line(-10, 10), 8),
    "asinh": (functions.asinh, torch.asinh, _ALL, 8),
    "acosh": (functions.acosh, torch.acosh, torch.cat((1 + 10.0 ** _line(-3, 0), 10.0 ** _line(0, 4))), 8),
    "atanh": (functions.atanh, torch.atanh, _NEAR_ZERO * 0.99, 8),
    "erf": (functions.erf, torch.erf, torch.cat((_NEAR_ZERO, _line(-6, 6))), 4),
    "erfc": (functions.erfc, torch.erfc, _line(-4, 2.5), 40),
    "tan": (angles.tan, torch.tan, _line(-1.5, 1.5), 8),
    "atan": (angles.atan, torch.atan, _ALL, 4),
    "asin": (angles.asin, torch.asin, _NEAR_ZERO * 0.999, 8),
    "acos": (angles.acos, torch.acos, _NEAR_ZERO * 0.999, 8),
    "silu": (activations.silu, F.silu, _line(-2, 12), 8),
    "gelu": (lambda x: activations.gelu(x, "none"), F.gelu, _line(-1, 9), 12),
    "gelu_tanh": (
        lambda x: activations.gelu(x, "tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
        _line(-1, 9),
        12,
    ),
    "mish": (activations.mish, F.mish, _line(-4, 20), 12),
    "softplus": (lambda x: activations.softplus(x, 2, 20), lambda x: F.softplus(x, 2, 20), _line(-2, 30), 8),
    "softplus_low": (lambda x: activations.softplus(x, 1, 3), lambda x: F.softplus(x, 1, 3), _line(-2, 2.9), 8),
    "elu": (lambda x: activations.elu(x, 1.5, 2, 0.5), lambda x: 2 * torch.where(x > 0, x, 1.5 * torch.expm1(x / 2)),
            torch.cat((_NEAR_ZERO, _line(-9, 9))), 8),
    "hardsigmoid": (activations.hardsigmoid, F.hardsigmoid, _line(-2, 9), 4),
    "hardswish": (activations.hardswish, F.hardswish, _line(-2, 9), 4),
    "power": (lambda x: functions.power(x, 1.7), lambda x: x**1.7, 10.0 ** _line(-2, 2), 24),
    "cube": (lambda x: functions.power(x, -3), lambda x: x**-3.0, _line(-9, -0.5), 4),
}  # fmt: skip


def _error(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> Tensor:
    """The error in units of the last place of what is wanted; beside the smallest normal number, of that."""
    least = float(torch.finfo(dtype).tiny) * 4
    return (found.double() - wanted).abs() / wanted.abs().clamp(min=least) / float(torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_as_exact_as_its_argument_says(name: str, dtype: torch.dtype) -> None:
    make, exact, arguments, bound = FUNCTIONS[name]
    x = arguments.to(dtype)
    wanted = exact(x.double())
    inside = wanted.abs() < torch.finfo(dtype).max / 2
    if dtype is torch.float16:
        inside &= wanted.abs() > 2.0**-10  # what is computed on the way may have no float16
    worst = _error(computed(make, x), wanted, dtype)[inside].max()
    assert worst <= bound
