"""Elementwise operators on the device, compared with PyTorch in double precision (floats) or bit by bit (integers)."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from delegatekit_conformance.testkit import compare, lower

pytestmark = pytest.mark.needs_device

#: Functions are accurate to two units in the last place; those composed of several, to a few.
TOLERANCE = 1e-6
HALF = {"fp16": True}
#: Half precision rounds after every operator: 2^-11 each, and more where results cancel.
HALF_TOLERANCE = 4e-3


def values(seed: int, *shape: int) -> torch.Tensor:
    """Numbers on both sides of 0 and of every breakpoint."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * 3


FUNCTIONS = {
    "exponentials": lambda x: (x.exp(), x.sigmoid(), x.tanh(), torch.expm1(x), torch.exp2(x)),
    "waves": lambda x: (x.sin(), x.cos(), (1024 * x).sin()),
    "roots": lambda x: (x.abs().sqrt(), (x.abs() + 0.1).rsqrt(), (x.abs() + 0.1).reciprocal(), x.square()),
    "logarithms": lambda x: tuple(f(x.abs() + 0.1) for f in (torch.log, torch.log2, torch.log10, torch.log1p)),
    "steps": lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.sign(), x.neg(), x.abs()),
    "activations": lambda x: (F.relu(x), F.relu6(x), F.hardswish(x), F.hardsigmoid(x), F.silu(x), F.leaky_relu(x, 0.2)),
    "gelu": lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")),
    "soft activations": lambda x: (F.elu(x), F.selu(x), F.softplus(x), F.mish(x), F.logsigmoid(x), F.celu(x, 0.5)),
    "shrinks": lambda x: (F.hardshrink(x, 1.0), F.softshrink(x, 1.0), F.hardtanh(x, -0.5, 2.0), F.threshold(x, 1, 3)),
    "clamps": lambda x: (x.clamp(-1, 2), x.clamp(min=0.5), x.clamp(max=-0.5), x.clamp(2, -2)),
    "products": lambda x: (x**2, x**3, x**4, x**1, x**0),
    "powers": lambda x: tuple((x.abs() + 0.3) ** p for p in (0.5, -0.5, -1, -2, 2.5, -1.7, 6)),
    "powers of numbers": lambda x: (2.5**x, 0.3**x),
    "numbers": lambda x: (x + 2.5, 1 - x, x * 3, x / 7, 2 / (x.abs() + 1), x - 0.5),
    "whole divisions": lambda x: (x // 0.5, torch.div(x, 3.0, rounding_mode="trunc"), x % 0.25, torch.fmod(x, 0.5)),
    "tangent": lambda x: torch.tan(x / 8),
    "hyperbolic functions": lambda x: (x.sinh(), x.cosh(), x.asinh(), (x.abs() + 1).acosh(), (x / 12).atanh()),
    "angles": lambda x: (x.atan(), (x / 12).asin(), (x / 12).acos(), torch.atan2(x, x.flip(0)), torch.hypot(x, x[:1])),
    "error functions": lambda x: (x.erf(), x.erfc()),
    "signs": lambda x: (x.copysign(x.flip(0)), x.copysign(-2.0), x.signbit(), x.fmax(x.flip(0)), x.fmin(x.flip(0))),
    "scales": lambda x: torch.ldexp(x, x.flip(0).round()),
    "gates": lambda x: F.glu(x[:, :16], 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_double_precision(name):
    compare(lower(FUNCTIONS[name], values(0, 5, 17), backend="vulkan"), tolerance=TOLERANCE)


#: Half precision moves numbers across the breakpoints of the others.
SMOOTH = sorted(
    set(FUNCTIONS)
    - {"steps", "whole divisions", "waves", "shrinks", "powers of numbers", "powers", "tangent", "hyperbolic functions"}
    - {"signs", "scales"}
)


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_agree_in_half_precision(name):
    # Numbers that half precision represents, so that only the results are rounded.
    x = values(1, 5, 17).clamp(-3, 3).half().float()
    compare(lower(FUNCTIONS[name], x, backend="vulkan", options=HALF), tolerance=HALF_TOLERANCE)


WIDE = torch.exp(torch.linspace(-20, 87, 1000))
#: Numbers near 0 whose halves are normal: a driver may flush others to 0.
NEAR = (1 / WIDE[200:]).clamp(min=2.0**-125)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (torch.exp, torch.linspace(-87, 88.7, 1000)),
        (torch.sin, torch.cat([WIDE, -WIDE])),
        (torch.cos, torch.cat([WIDE, -WIDE])),
        (torch.log, WIDE),
        (torch.log, torch.linspace(0.9, 1.1, 1000)),
        (torch.log1p, 1 / WIDE),
        (torch.expm1, NEAR),
        (torch.tanh, 1 / WIDE),
        (lambda x: x**-0.375, WIDE),
        (lambda x: x**-223.5, torch.linspace(0.68, 1.47, 1000)),
        (lambda x: 10.0**x, torch.linspace(-37, 38, 1000)),
        (torch.asinh, torch.cat([WIDE, -WIDE])),
        (torch.acosh, 1 + WIDE[WIDE > 1e-6]),
        (torch.atanh, NEAR.clamp(max=0.9)),
        (torch.atan, torch.cat([WIDE, -WIDE])),
        (torch.erf, torch.cat([WIDE, NEAR])),
    ],
    ids=[
        *("exp", "sin", "cos", "log", "log-near-1", "log1p", "expm1", "tanh", "pow", "pow-near-1", "10**x"),
        *("asinh", "acosh", "atanh", "atan", "erf"),
    ],
)
def test_functions_are_exact_over_the_whole_range(function, x):
    got = lower(function, x, backend="vulkan").run()[0].double()
    want = function(x.double())
    assert float(((got - want) / want).abs().max()) < 4e-7


SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-30])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.exp(), x.sigmoid(), x.tanh(), x.sin(), x.cos(), x.sqrt(), x.rsqrt(), x.reciprocal()),
        lambda x: (x.log(), x.log10(), x.log1p(), x.expm1()),
        lambda x: (
            x.sinh(),
            x.cosh(),
            x.asinh(),
            x.acosh(),
            x.atanh(),
            x.atan(),
            x.asin(),
            x.acos(),
            x.erf(),
            x.erfc(),
        ),
        lambda x: (x.fmax(x.flip(0)), x.fmin(x.flip(0)), x.copysign(x.flip(0)), x.signbit(), F.softplus(x)),
        lambda x: torch.atan2(x.clamp(-1e30, 1e30)[:, None], x[None]),
        lambda x: (F.relu(x), x.clamp(-1, 1), F.leaky_relu(x), x.abs(), -x, x.round(), x.floor(), x.ceil(), x.sign()),
        lambda x: (F.gelu(x), F.hardswish(x), F.silu(x), F.hardshrink(x)),
        lambda x: (x**2, x**3, x**-1, x**2.5, x**-3.5, x**5, 2**x, 0.5**x),
        lambda x: (x.isnan(), x.isinf(), torch.eq(x, x), x > 0, x != 1, x <= -1),
        lambda x: (torch.maximum(x, x.flip(0) + 0), torch.minimum(x, x.flip(0) + 0), x * x.flip(0), x / x.flip(0)),
    ],
)
def test_special_values_are_those_of_pytorch(function):
    lowered = lower(function, SPECIAL, backend="vulkan")
    # In single precision PyTorch's own formulas overflow for some of these.
    for got, want in zip(lowered.run(), lowered.eager(dtype=torch.float64), strict=True):
        torch.testing.assert_close(got, want.to(got.dtype), rtol=1e-6, atol=1e-6, equal_nan=True)


SHAPES = [
    ((3, 5), (3, 5)),
    ((2, 3, 8), (8,)),
    ((8,), (2, 3, 8)),
    ((2, 3, 5), (3, 1)),
    ((2, 1, 8), (1, 3, 1)),
    ((), (3, 4)),
    ((), ()),
    ((5, 1), (6,)),
    ((2, 3, 4, 8), (1, 1, 4, 8)),
    ((2, 3, 4, 8), (2, 3, 1, 8)),
    ((2, 1, 2, 1, 2, 1), (1, 3, 1, 3, 1, 3)),
    ((1, 2, 1, 2, 1, 2, 1, 2), (2, 1, 2, 1, 2, 1, 2, 1)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_operands_are_broadcast(left, right):
    def function(x, y):
        return x + y, torch.sub(x, y, alpha=2.5), x * y, x / (y.abs() + 1), torch.minimum(x, y), torch.maximum(x, y)

    compare(lower(function, values(2, *left), values(3, *right), backend="vulkan"), tolerance=TOLERANCE)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 5), (3, 5), (3, 5)),
        ((1, 1, 8, 8), (2, 3, 8, 8), ()),
        ((2, 1, 3), (4, 1), (3,)),
        ((7,), (), (7,)),
        ((2, 1, 4, 1), (1, 3, 1, 8), (2, 3, 4, 8)),
    ],
)
def test_choices_are_broadcast(shapes):
    def function(x, y, z):
        return torch.where(x > 0.5, y, z)

    inputs = [values(seed, *shape) for seed, shape in enumerate(shapes)]
    compare(lower(function, *inputs, backend="vulkan"), tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_are_exact(dtype):
    def function(x, y):
        return (
            torch.div(x, 3, rounding_mode="trunc"), torch.fmod(x, y.abs() + 1), x.fmax(y), y.signbit(),
            x + y, x - 3, 7 - y, x * 3, x // 3, x % 5, x // (y.abs() + 1), x.clamp(-2, 9), x.clamp(min=0), -x, x.abs(),
            torch.maximum(x, y), torch.minimum(x, y), x == y, x > 2, x != y, torch.where(x > y, x, y), ~x, x.sign(),
            x.relu(), x * (y > 0), x.logical_not(), x.logical_and(y), x.float() / 3, x.bool(), torch.where(x > 0, x, 7),
        )  # fmt: skip

    x = torch.randint(-1000, 1000, (3, 7), dtype=dtype)
    y = torch.randint(-5, 6, (7,), dtype=dtype)
    lowered = lower(function, x, y, backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want)


def test_maxima_of_the_least_integer_are_exact():
    x, y = torch.tensor([-(2**31), 2**31 - 1, 0, -1], dtype=torch.int32), torch.tensor([5, -(2**31), 7, -(2**31)])
    lowered = lower(lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), x, y.int(), backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want)


def test_products_of_integers_wrap_around_as_in_pytorch():
    x = torch.randint(-(2**31), 2**31 - 1, (3, 7), dtype=torch.int32)
    lowered = lower(lambda x, y: (x * y, x**2, x**3, x.square()), x, x.flip(0), backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want)


def test_choices_between_integers_survive_differences_beyond_32_bits():
    x = torch.tensor([2**31 - 1, -(2**31), 5], dtype=torch.int32)
    compare(lower(lambda x, y: torch.where(x > 0, x, y), x, x.flip(0).contiguous(), backend="vulkan"))


def test_functions_of_integers_are_computed_in_floating_point():
    x = torch.arange(-6, 6, dtype=torch.int32)
    lowered = lower(lambda x: (x.sin(), x.sigmoid(), x / 2, x.exp(), torch.sqrt(x.abs())), x, backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want, rtol=TOLERANCE, atol=TOLERANCE)


def test_truth_values_are_combined():
    def function(x, y):
        a, b = x > 0, y > 0
        return (
            a & b, a | b, a ^ b, ~a, a.logical_xor(b), a.logical_not(), a == b, a != b, a < b, torch.where(a, b, ~b),
            a.float() + 1, a.int() - 2, a * b, a + b, x.logical_and(b), x.masked_fill(b, -math.inf), a.long() + 1,
        )  # fmt: skip

    lowered = lower(function, values(4, 3, 7), values(5, 7), backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want)


def test_conversions_cut_the_fraction_off_and_round_to_half_precision():
    def function(x):
        whole = x.to(torch.int32)
        return (
            whole + 0,
            x.to(torch.int64) * 1,
            x.half() + 0,
            (whole + 1).float(),
            x.bool(),
            (whole + 1).bool(),
            x.half().float() * 3,
        )

    lowered = lower(function, values(6, 3, 5) * 10, backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want)


def test_truth_values_are_inputs_and_outputs():
    mask = torch.tensor([True, False, True])
    compare(lower(lambda m, n: (m & n, ~m), mask, ~mask, backend="vulkan"))


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 17), (1, 1, 1), (2, 3, 2, 2, 3), (1, 2, 1, 2, 1, 2, 1, 3)])
def test_functions_take_any_shape(shape):
    compare(
        lower(lambda x: (x.tanh(), x * 2, x > 0.5, x.clamp(-1, 1)), values(7, *shape), backend="vulkan"),
        tolerance=TOLERANCE,
    )


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1000])
def test_programs_in_half_precision_agree(size):
    x = values(8, size).half()
    lowered = lower(lambda x: (x.sigmoid() * x + 0.5, x > 0, x.float() + 1), x, backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("options", [{}, HALF])
def test_results_have_the_types_of_the_program(options):
    def function(x):
        return x.half() * 2, x.half(), x * 3, x.half().float(), (x.half() + 1).float()

    lowered = lower(function, values(9, 4, 5), backend="vulkan", options=options)
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)
