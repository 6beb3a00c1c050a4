"""Elementwise operators against PyTorch in double precision (floats) or bit by bit (integers)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import delegatekit
from delegatekit_conformance.testkit import compare, lower
from delegatekit_coreml.support import TABLE
from delegatekit_toolkit.accuracy import ROUNDOFF, tolerance

SINGLE = {"precision": "float32"}
#: The longest chain is mish's: an exponential, a logarithm, a tangent and a product.
TOLERANCE = tolerance("float32", "float32", 1, depth=4)
#: One rounding, with the formula's room for eight: none of the functions here is composed of more.
HALF_TOLERANCE = tolerance("float32", "float16", 1)


def values(seed: int, *shape: int) -> torch.Tensor:
    """Numbers on both sides of 0 and of every corner."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2


FUNCTIONS: dict[str, Any] = {
    "exponentials": lambda x: (x.exp(), x.sigmoid(), x.tanh(), torch.expm1(x), torch.exp2(x)),
    "waves": lambda x: (x.sin(), x.cos(), torch.atan(x), torch.asin(x / 9), torch.acos(x / 9), torch.tan(x / 8)),
    "hyperbolic": lambda x: (torch.sinh(x), torch.cosh(x), torch.atanh(x / 9), torch.erf(x)),
    "roots": lambda x: (x.abs().sqrt(), (x.abs() + 0.1).rsqrt(), (x.abs() + 0.1).reciprocal(), x.square()),
    "logarithms": lambda x: tuple(f(x.abs() + 0.1) for f in (torch.log, torch.log2, torch.log10, torch.log1p)),
    "steps": lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.sign(), x.neg(), x.abs()),
    "activations": lambda x: (F.relu(x), F.relu6(x), F.hardswish(x), F.hardsigmoid(x), F.silu(x), F.leaky_relu(x, 0.2)),
    "gelu": lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")),
    "soft activations": lambda x: (F.elu(x), F.selu(x), F.softplus(x), F.mish(x), F.logsigmoid(x), F.celu(x, 0.5)),
    "sharp and blunt softplus": lambda x: (F.softplus(9 * x, 3.0), F.softplus(9 * x, 0.25, 17.0)),
    "shrinks": lambda x: (F.hardshrink(x, 1.0), F.softshrink(x, 1.0), F.hardtanh(x, -0.5, 2.0), F.threshold(x, 1, 3)),
    "clamps": lambda x: (x.clamp(-1, 2), x.clamp(min=0.5), x.clamp(max=-0.5), x.clamp(2, -2)),
    "products": lambda x: (x**2, x**3, x**4, x**1, x**0),
    "powers": lambda x: tuple((x.abs() + 0.5) ** p for p in (0.5, -0.5, -1, -2, 2.5, -1.7)),
    "powers of numbers": lambda x: (2.5**x, 0.3**x),
    "numbers": lambda x: (x + 2.5, 1 - x, x * 3, x / 7, 2 / (x.abs() + 1), torch.sub(x, x * 2, alpha=0.5)),
    "whole divisions": lambda x: (x // 0.5, torch.div(x, 4.0, rounding_mode="trunc"), x % 0.25, torch.fmod(x, 0.5)),
    "gates": lambda x: F.glu(x[:, :16], 1),
}
#: Half precision moves numbers across corners.
SMOOTH = sorted(set(FUNCTIONS) - {"steps", "whole divisions", "shrinks"})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_double_precision(name: str) -> None:
    compare(lower(FUNCTIONS[name], values(0, 5, 17), backend="coreml", options=SINGLE), tolerance=TOLERANCE)


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_agree_in_half_precision(name: str) -> None:
    # Numbers that half precision has, so that only the results are rounded.
    x = values(1, 5, 17).clamp(-3, 3).half().float()
    compare(lower(FUNCTIONS[name], x, backend="coreml"), tolerance=HALF_TOLERANCE)


SHAPES = [
    ((3, 5), (3, 5)),
    ((2, 3, 8), (8,)),
    ((2, 3, 5), (3, 1)),
    ((2, 1, 8), (1, 3, 1)),
    ((), (3, 4)),
    ((), ()),
    ((5, 1), (6,)),
    ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1)),
]


def test_inverse_roots_of_negative_zero_are_what_the_table_says() -> None:
    x = torch.tensor([-0.0, 4.0])
    lowered = lower(lambda x: (x.rsqrt(), x**-0.5), x, backend="coreml")
    for found in delegatekit.load(lowered.buffer)["forward"](x):
        assert torch.equal(found, torch.tensor([torch.inf, 0.5]))
    told = TABLE["aten.rsqrt.default"].special_values
    assert told == "the inverse root of -0 is infinity, not -infinity"
    power: Any = TABLE["aten.pow.Tensor_Scalar"].special_values
    assert [power({"exponent": exponent}) for exponent in (-0.5, 0.5, 2)] == [told, "", ""]


def test_half_precision_does_not_overflow_on_the_way() -> None:
    x = torch.tensor([[25.0, 400.0, -400.0, 60000.0], [-60000.0, 0.0, 1.0, 300.0]])

    def function(x: torch.Tensor) -> Any:
        norms = [torch.linalg.vector_norm(x / 8, order, (0, 1)) for order in (1, 2, float("inf"))]
        return *norms, x.norm(dim=1), F.softplus(x, 0.5), F.softplus(x, 3.0)

    lowered = lower(function, x, backend="coreml")
    # Scaling, root, scaling back and the result are rounded. Softplus of -60000 is 0 in float32, too.
    for found, wanted in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=4 * ROUNDOFF["float16"], atol=1e-6)


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_operands_are_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        chosen = torch.where(x > 0, y, 0.5)
        return x + y, x * y, x / (y.abs() + 1), torch.minimum(x, y), torch.maximum(x, y), x < y, chosen

    inputs = values(2, *left), values(3, *right)
    compare(lower(function, *inputs, backend="coreml", options=SINGLE), tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_are_exact(dtype: torch.dtype) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        quotients = (a // b, torch.div(a, b, rounding_mode="trunc"), torch.fmod(a, b), a // 3)
        # A product of int64 tensors is refused: it may leave 32 bits.
        products = (a * b, a**2, a % b) if dtype is torch.int32 else (a * 3,)
        return (*quotients, *products, a + b, a - b, a == b, a < b, -a, a.abs(), a.clamp(-2, 2), a.sign(), ~a)

    a, b = torch.tensor([7, -7, 5, -3, 0], dtype=dtype), torch.tensor([2, 2, -3, -3, 4], dtype=dtype)
    compare(lower(function, a, b, backend="coreml"))


def test_truth_values_go_in_and_out() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a & b, a | b, a ^ b, ~a, torch.where(a, b, a), a == b, a + b, a * b, torch.cat([a, b]).logical_not()

    compare(lower(function, torch.tensor([True, False, True]), torch.tensor([True, True, False]), backend="coreml"))


def test_tensors_without_axes_go_in_and_out() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a + b, a * 2, b > 0

    inputs = torch.tensor(1.5), torch.tensor(2.0)
    compare(lower(function, *inputs, backend="coreml", options=SINGLE), tolerance=TOLERANCE)


@pytest.mark.parametrize("target", ["ios15", "ios16"])
def test_half_precision_crosses_the_border_as_the_target_can(target: str) -> None:
    lowered = lower(lambda x: x * 2 + 1, torch.randn(3).half(), backend="coreml", options={"target": target})
    compare(lowered)


def test_named_operators_are_computed_in_single_precision() -> None:
    # A logarithm, roots and sums are rounded one after the other, or their result alone.
    x = values(4, 3, 4000).half().float()
    exact = torch.asinh(x.double())

    def error(**options: Any) -> float:
        found = lower(torch.asinh, x, backend="coreml", options=options).run()[0].double()
        return float(((found - exact) / exact).abs().max())

    assert error() > 1.5 * ROUNDOFF["float16"]
    assert error(float32_operators="asinh") < 1.01 * ROUNDOFF["float16"]


def test_constants_of_named_operators_are_single_precision() -> None:
    steps = torch.tensor([1e5, 0.25])
    lowered = lower(lambda x: (x * steps) * 1e-4, torch.ones(2), backend="coreml", options={"float32_operators": "mul"})
    # The first product leaves float16 before the second; float32 is kept within a call only.
    assert lowered.run()[0][1] == pytest.approx(0.25e-4, rel=4 * ROUNDOFF["float16"])


def test_numbers_beyond_half_precision_become_its_largest() -> None:
    lowered = lower(lambda x: torch.where(x > 0, x, -1e30), torch.tensor([1.0, -1.0]), backend="coreml")
    assert lowered.run()[0].tolist() == [1.0, -65504.0]
