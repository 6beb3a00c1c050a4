"""Every composition against float64, in arithmetic that has nothing but the primitives."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from delegatekit_toolkit.composed import Dialect, activations, along, angles, arithmetic, functions, number


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
_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "reduce_sum": torch.sum,
    "reduce_mean": torch.mean,
    "reduce_max": torch.amax,
    "reduce_min": torch.amin,
}


def _reduced(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda _, x, axes, keep: make(x, axes, keep)


def _places(_: object, x: Tensor, axis: int) -> Tensor:
    order = torch.arange(x.shape[axis], dtype=torch.int32)
    return order.reshape([-1 if at == axis else 1 for at in range(x.dim())]).expand(x.shape)


BARE: Dialect[Tensor] = Dialect(
    {
        "slice": lambda _, x, axis, start, end: x.narrow(axis, start, end - start),
        "concat": lambda _, parts, axis: torch.cat(parts, axis),
        "insert": lambda _, x, axis: x.unsqueeze(axis),
        "drop": lambda _, x, axes: x.squeeze(axes),
        "integers": lambda _, x: x.int(),
        "places": _places,
        **{name: _reduced(make) for name, make in _REDUCTIONS.items()},
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
    """The result of a composition for tensors."""
    result: Tensor = make(*(dialect.number(None, item) for item in operands), **options).value
    return result


def test_the_bare_dialect_has_what_every_target_has_and_no_more() -> None:
    moves = {name for name in BARE.primitives if name.startswith("reduce_")}
    moves |= {"slice", "concat", "insert", "drop", "integers", "places"}
    assert set(BARE.primitives) == number.REQUIRED | moves


def test_the_page_of_the_dialect_has_the_arguments_of_each_primitive() -> None:
    required, others = (Dialect.__doc__ or "").split("What computes along axes")
    told = []
    for part in (required, others):
        rows = [line.split("|")[1] for line in part.splitlines() if line.strip().startswith("| `")]
        told.append(set(re.findall(r"`(\w+)`", " ".join(rows))))
    assert told == [number.REQUIRED, set(BARE.primitives) - number.REQUIRED]


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


#: Sixteen units in the last place of float32: the largest bound of `FUNCTIONS` that is not an exponential's.
FEW = 16 * torch.finfo(torch.float32).eps
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-30, 0.5])
#: Those whose results for special numbers are PyTorch's.
OF_ONE = (
    *(functions.exp2, functions.tanh, functions.sigmoid, functions.expm1, functions.log1p, functions.sinh),
    *(functions.cosh, functions.asinh, functions.acosh, functions.atanh, functions.erf, functions.erfc),
    *(angles.atan, angles.asin, angles.acos, number.ceil, number.trunc, number.isnan, number.isinf, number.signbit),
    *(activations.relu, activations.hardsigmoid, activations.silu, activations.mish, activations.hardswish),
)


@pytest.mark.parametrize("make", OF_ONE, ids=lambda make: make.__name__)
def test_special_values_are_pytorchs(make: Callable[..., Any]) -> None:
    name = make.__name__
    exact = getattr(torch, name, None) or getattr(F, name)
    torch.testing.assert_close(computed(make, SPECIAL), exact(SPECIAL), rtol=FEW, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("make", "exact"),
    [
        (angles.atan2, torch.atan2),
        (functions.hypot, torch.hypot),
        (arithmetic.fmax, torch.fmax),
        (arithmetic.fmin, torch.fmin),
        (arithmetic.copysign, torch.copysign),
        (arithmetic.logical_and, torch.logical_and),
        (arithmetic.logical_or, torch.logical_or),
        (arithmetic.logical_xor, torch.logical_xor),
        *((make, getattr(torch, name)) for name, make in arithmetic.COMPARISONS.items()),
    ],
    ids=lambda make: make.__name__,
)
def test_special_values_of_pairs_are_pytorchs(make: Callable[..., Any], exact: Callable[..., Tensor]) -> None:
    pairs = torch.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    torch.testing.assert_close(computed(make, *pairs), exact(*pairs), rtol=FEW, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_divisions_are_pytorchs(mode: str, dtype: torch.dtype) -> None:
    x, y = torch.arange(-9, 10, dtype=dtype)[:, None], torch.tensor([-4, -2, 1, 2, 8], dtype=dtype)
    for right in (y, -3 if dtype is torch.int32 else -4.0):
        operands = (x, right) if isinstance(right, Tensor) else (x,)
        more = () if isinstance(right, Tensor) else (right,)
        found = computed(lambda *items, m=more: arithmetic.div(*items, *m, mode), *operands, dialect=WITH_INTEGERS)
        torch.testing.assert_close(found, torch.div(x, right, rounding_mode=mode))
        rest = arithmetic.remainder if mode == "floor" else arithmetic.fmod
        found = computed(lambda *items, r=rest, m=more: r(*items, *m), *operands, dialect=WITH_INTEGERS)
        torch.testing.assert_close(found, (torch.remainder if mode == "floor" else torch.fmod)(x, right))


def test_booleans_are_added_and_multiplied() -> None:
    x, y = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    torch.testing.assert_close(computed(arithmetic.add, x, y), x + y)
    torch.testing.assert_close(computed(arithmetic.mul, x, y), x * y)
    for right in (True, False):
        torch.testing.assert_close(computed(lambda item, r=right: arithmetic.add(item, r), x), x + right)
        torch.testing.assert_close(computed(lambda item, r=right: arithmetic.mul(item, r), x), x * right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("axes", [None, (0,), (1, -1)])
@pytest.mark.parametrize("keep", [False, True])
def test_variances_and_norms_are_exact(axes: tuple[int, ...] | None, keep: bool, dtype: torch.dtype) -> None:
    # In float16 the squares of these have no numbers.
    x = (torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0)) * 300).to(dtype)
    wide, bound = x.double(), 2e-6 if dtype is torch.float32 else 4e-3
    every = tuple(range(3)) if axes is None else axes

    def close(found: Tensor, wanted: Tensor) -> None:
        torch.testing.assert_close(found.double(), wanted, rtol=bound, atol=bound)

    close(computed(along.std, x, dim=axes, correction=None, keepdim=keep), wide.std(every, keepdim=keep))
    small = x / 8
    exact = small.double().var(every, correction=0, keepdim=keep)
    close(computed(along.var, small, dim=axes, correction=0, keepdim=keep), exact)
    for order in (1, 2, math.inf, -math.inf):
        if dtype is torch.float16 and order == 1:
            continue
        exact = torch.linalg.vector_norm(wide, order, every, keepdim=keep)
        close(computed(along.norm, x, order=order, dim=axes, keepdim=keep), exact)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_distances_are_exact(p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, 5, 7, generator=generator), torch.randn(4, 7, generator=generator)
    found = computed(along.cdist, x, y, p=p)
    torch.testing.assert_close(found.double(), torch.cdist(x.double(), y.double(), p), rtol=FEW, atol=0)


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_what_runs_up_to_each_element_is_pytorchs(size: int) -> None:
    x = torch.randn(3, size, 2, generator=torch.Generator().manual_seed(size))
    x[0, size // 2, 0], x[1, 0, 1] = math.nan, math.inf
    for make, exact in ((along.cummax, torch.cummax), (along.cummin, torch.cummin)):
        values, places = make(BARE.number(None, x), 1)
        wanted, wanted_places = exact(x, 1)
        torch.testing.assert_close(values.value, wanted, equal_nan=True)
        torch.testing.assert_close(places.value.long(), wanted_places)
    for sums, wanted in ((along.cumsum, x.cumsum(1)), (along.cumprod, x.cumprod(1))):
        torch.testing.assert_close(computed(sums, x, dim=1), wanted, equal_nan=True)
    flags = x > 0
    values, places = along.cummax(BARE.number(None, flags), 1)
    torch.testing.assert_close((values.value, places.value.long()), tuple(flags.cummax(1)))
