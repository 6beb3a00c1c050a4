"""Arithmetic and functions of single values, compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from delegatekit_toolkit.tosa.lowering.schemes import FUNCTIONS

X = (1, 8, 6, 7)
QUARTER = torch.tensor(0.25)
#: Functions that are not defined for all numbers get inputs in their domain.
POSITIVE = {"log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "acosh"}
MORE: dict[str, Any] = {
    "clamp": lambda x: x.clamp(-0.3, 0.7),
    "clamp_min": lambda x: x.clamp_min(0.2),
    "clamp_max": lambda x: x.clamp_max(0.2),
    "threshold": nn.Threshold(0.1, 0.2),
    "log_sigmoid": functional.logsigmoid,
    "aten.pow.Tensor_Scalar": lambda x: x**3,
    "aten.rsub.Scalar": lambda x: 1 - x,
    "asin": lambda x: torch.asin(torch.sigmoid(x)),
    "acos": lambda x: torch.acos(torch.sigmoid(x)),
    "atanh": lambda x: torch.atanh(torch.sigmoid(x) * 0.9),
    "acosh": lambda x: torch.acosh(x.abs() + 1.5),
}


def function(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    if name in MORE:
        return MORE[name]
    found: Any = getattr(functional, name, None) or getattr(torch, name)
    return (lambda x: found(x.abs() + 0.5)) if name in POSITIVE else found


@pytest.mark.sweep
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_single_values_are_eagers_bit_by_bit(name: str, agrees: Any) -> None:
    for delegated in agrees(function(name), torch.randn(X), share=0, steps=0).values():
        assert not set(delegated.operators) - {"TABLE", "CLAMP", "RESCALE", "IDENTITY"}


ARITHMETIC: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "sum": (torch.add, (X, X)),
    "sum, broadcast": (torch.add, (X, (8, 1, 1))),
    "sum and relu": (lambda a, b: functional.relu(a + b), (X, X)),
    "difference": (torch.sub, (X, X)),
    "product": (torch.mul, (X, X)),
    "gates": (torch.mul, (X, (1, 8, 1, 1))),
    "product, other rank": (torch.mul, ((4, 6), (3, 1, 6))),
    "larger": (torch.maximum, (X, X)),
    "larger, one scale": (lambda a: torch.maximum(a, a.flip(0)), ((3, 5),)),
    "a number less many axes": (torch.sub, ((), (3, 2, 1, 4, 2))),
    "many axes less a number": (torch.sub, ((3, 2, 1, 4, 2), ())),
    "larger than a constant number, many axes": (lambda x: torch.maximum(QUARTER, x), ((3, 2, 1, 4, 2),)),
    "smaller": (lambda a, b: torch.minimum(a, 3 * b), (X, X)),
    "quotient": (lambda a, b: a / (b.abs() + 1), (X, X)),
    "numbers": (lambda x: x * 0.3 + 1.7, (X,)),
    "square": (lambda x: x * x, (X,)),
    "matrices": (torch.mm, ((7, 16), (16, 9))),
    "stacks of matrices": (lambda a, b: a @ b.transpose(-1, -2), ((1, 3, 7, 16), (1, 3, 9, 16))),
    "gated unit": (nn.GLU(1), (X,)),
    "slopes": (nn.PReLU(8), (X,)),
    "one slope": (nn.PReLU(), ((5, 8),)),
    "recurrent gate": (lambda a, b: torch.sigmoid(a) * torch.tanh(b) + (1 - torch.sigmoid(a)) * b, ((1, 16), (1, 16))),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_as_in_eager(name: str, agrees: Any) -> None:
    model, shapes = ARITHMETIC[name]
    agrees(model, *map(torch.randn, shapes), share=0.03)


def test_constants_are_operands(agrees: Any) -> None:
    class Affine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.randn(8, 1, 1))
            self.register_buffer("shift", torch.randn(7))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor + self.shift

    agrees(Affine(), torch.randn(X))


CONSTANT_DIVISORS = {
    "of one sign": [0.2, 0.2, 0.3],
    "of both signs": [-0.5, 0.25, 2.0],
    "far apart": [1.0, 30.0, 0.5],
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CONSTANT_DIVISORS)
def test_divisors_may_be_constants(name: str, agrees: Any) -> None:
    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("divisors", torch.tensor(CONSTANT_DIVISORS[name]).view(1, 3, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / self.divisors

    agrees(Divided(), torch.randn(1, 3, 6, 7))
    agrees(Divided(), torch.rand(1, 3, 6, 7))


def test_images_are_normalized_by_constants(agrees: Any) -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
            self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x / 255 - self.mean) / self.deviation

    agrees(Normalized(), torch.rand(1, 3, 8, 8) * 255, share=0.03)


@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_bounds_the_wrong_way_round_give_the_upper_one(scheme: str, agrees: Any) -> None:
    agrees(lambda x: x.clamp(1.0, -1.0), torch.randn(4, 5), scheme=scheme)
    agrees(lambda x: (x + x.flip(1)).clamp(0.5, -0.5), torch.randn(4, 5), scheme=scheme)


def test_functions_in_a_row_that_nobody_quantized_are_one_table() -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    import delegatekit

    class Swish(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = torch.ops.quantized_decomposed
            x = q.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
            x = q.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
            x = x * torch.sigmoid(1.7 * x) + 0.5
            x = q.quantize_per_tensor(x, 0.03, -20, -128, 127, torch.int8)
            return q.dequantize_per_tensor(x, 0.03, -20, -128, 127, torch.int8)

    x = torch.randn(4, 9) * 3
    program = delegatekit.lower(Swish(), (x,), backends=["ethosu"])
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1
    assert torch.equal(delegatekit.load(program.buffer)["forward"](x), Swish()(x))


@pytest.mark.parametrize("target", ["ethos-u55-32", "ethos-u55-64"])
def test_tables_behind_transposes_have_a_place_on_small_accelerators(target: str, agrees: Any) -> None:
    # Vela 5.1 puts them past the end of the internal memory: see `Builder.tabled`.
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.Flatten(2), nn.Tanh())
    agrees(model, torch.randn(1, 3, 6, 5), targets=[target])


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("unit", [1.0, 1 / 220])
def test_what_saturates_before_it_is_scaled_does_so(unit: float, moved: bool, whole_program: Any) -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    def stored(x: torch.Tensor, scale: float) -> torch.Tensor:
        q = torch.ops.quantized_decomposed
        kind = (-128, 127, torch.int8) if unit == 1 else (-32768, 32767, torch.int16)
        return q.dequantize_per_tensor(q.quantize_per_tensor(x, scale * unit, 0, *kind), scale * unit, 0, *kind)

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sums = stored(stored(x, 0.03).sum(0), 0.03)
            return stored(sums.T.reshape(1, 2, 3, 3) if moved else sums, 0.05)

    delegated = whole_program(Sums(), torch.randn(5, 9, 2))
    (got,), (want,) = delegated.run(), delegated.eager()
    assert float(((got - want) / (0.05 * unit)).abs().max()) < 1.01
