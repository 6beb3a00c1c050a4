"""Elementwise operators and functions, in one graph for each family, against PyTorch in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import delegatekit
from delegatekit_api import ExecutionError
from delegatekit_conformance.testkit import refusals
from delegatekit_qnn.options import QnnOptions
from delegatekit_qnn.support import REFUSED, QnnPartitioner
from delegatekit_toolkit.testing import as_module


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) * sum(shape)))


BETWEEN = torch.linspace(-0.95, 0.95, 48).reshape(6, 8)
WHOLE = torch.randint(-9, 9, (4, 6), generator=torch.Generator().manual_seed(0))

CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "functions of any number": (
        lambda x: (
            *(function(x) for function in (torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.abs, torch.neg)),
            *(function(x) for function in (torch.sin, torch.cos, torch.atan, torch.sign, torch.square, torch.exp2)),
            *(function(x) for function in (torch.sinh, torch.cosh, torch.asinh, torch.erf, torch.erfc, torch.expm1)),
        ),
        (drawn(4, 6),),
    ),
    "activations": (
        lambda x: (
            *(f(x) for f in (F.gelu, F.silu, F.hardswish, F.hardsigmoid, F.elu, F.leaky_relu, F.selu, F.celu)),
            *(f(x) for f in (F.relu6, F.hardtanh, F.softplus, F.mish, F.logsigmoid, F.hardshrink)),
            F.gelu(20 * x, approximate="tanh"),
            F.elu(x, 0.7),
            F.softplus(x, 2, 3),
            F.glu(x, 1),
        ),
        (2 * drawn(4, 6),),
    ),
    "functions of numbers above zero": (
        lambda x: (
            *(function(x) for function in (torch.log, torch.log2, torch.log10, torch.sqrt, torch.rsqrt)),
            *(function(x) for function in (torch.reciprocal, torch.log1p)),
            x**3,
            x**-2,
            x**0.3,
            2**x,
            torch.acosh(1 + 20 * x),
        ),
        (drawn(4, 6).abs() + 0.3,),
    ),
    "functions of numbers between -1 and 1": (
        lambda x: (torch.asin(x), torch.acos(x), torch.atanh(x), torch.tan(x), torch.log1p(x)),
        (BETWEEN,),
    ),
    "arithmetic": (
        lambda x, y, z: (
            x + y,
            x - z,
            torch.add(x, y, alpha=2),
            x * y,
            x / z,
            torch.maximum(x, y),
            torch.minimum(x, z),
            1 - x,
            torch.rsub(x, y, alpha=2),
            torch.rsub(x, 2.0, alpha=3),
            x**2,
            x // 2,
            x.clamp(-0.5, 0.5),
            torch.clamp(x, y, y + 1),
            z**y,
        ),
        (drawn(2, 4, 6, 8), drawn(2, 1, 6, 8), drawn(8).abs() + 0.3),
    ),
    "several tensors": (
        lambda x, y: (
            *(torch.atan2(x, y), torch.atan2(-y, x), torch.hypot(x, y), torch.hypot(300 * x, 300 * y)),
            *(
                torch.fmax(x, y),
                torch.fmin(x, y),
                (x > 0) * (y > 0),
                torch.atan2((x * 0).abs(), x),
                torch.hypot(x * 0, y * 0),
            ),
            torch.atan2(1e-3 * x, y.abs() + 1) * 1000,
        ),
        (drawn(2, 4, 6), drawn(6)),
    ),
    "integers": (
        lambda i, j: (
            *(i + j, i - 3, i * 2, -i, i.abs(), i.sign(), torch.maximum(i, j), i.clamp(-2, 2), ~i),
            *(i > j, i == j, i.float() / 2, i * 0.5, i.bool(), i.sigmoid()),
        ),
        (WHOLE, WHOLE.flip(0)),
    ),
    "comparisons and logic": (
        lambda x, y: (
            *(x > y, x >= 0.1, x < y, x <= y, x == y, x != y, (x > 0) == (y > 0)),
            *((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0), torch.logical_not(x)),
            torch.where(x > 0, x, y),
            torch.where(x > 0, 1.5, y),
            torch.where(x > 0, x > 1, y > 0),
            x.masked_fill(y > 0, 2.0),
        ),
        (drawn(4, 6), drawn(6)),
    ),
    "conversions": (
        lambda x: (x.int(), x.long(), x.bool(), (x > 0).float(), (x > 0).long(), x.floor(), x.ceil(), x.trunc()),
        (5 * drawn(4, 6),),
    ),
    "five axes": (
        lambda x, y: (
            *(x.tanh(), torch.maximum(x, y), x.sign(), x.neg(), x.abs().log(), x + y, x * y, x.tril(), x.clamp(-1, 1)),
            *(F.leaky_relu(x), torch.sin(x) / 2, (x + 1) * y.tanh()),
        ),
        (drawn(2, 3, 2, 4, 6), drawn(2, 1, 2, 1, 6)),
    ),
    "a tensor without axes": (lambda x: (x + 1, x.tanh(), x.reshape(1, 1) * 2, x > 0), (drawn(),)),
}


def test_truth_values_become_exactly_one(agree: Callable[..., Any]) -> None:
    agree(lambda x: (x > 0).float(), drawn(4, 6), tolerance=0.0)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_double_precision(name: str, agree: Callable[..., Any]) -> None:
    model, inputs = CASES[name]
    agree(model, *inputs)


def test_numbers_near_zero_keep_their_digits(agree: Callable[..., Any]) -> None:
    # Scaled up again inside the delegate, so that errors count.
    functions = (torch.log1p, torch.expm1, torch.tan, torch.sinh, torch.erf, torch.asinh)
    agree(lambda x: tuple(function(x) * 100 for function in functions), 1e-2 * BETWEEN)


def test_outputs_come_in_the_order_of_the_program_whatever_computes_them_first(agree: Callable[..., Any]) -> None:
    def outputs(x: torch.Tensor) -> Any:
        first = x.int()
        second = first.float() * 0.5
        return second.long(), first, second, x > 0, second

    agree(outputs, 3 * drawn(4, 6))


@pytest.mark.parametrize("lowest", [float("-inf"), torch.finfo(torch.float32).min, -1e9])
def test_masks_that_float16_cannot_hold_hide_what_they_should(lowest: float, agree: Callable[..., Any]) -> None:
    mask = torch.tensor([[0, 1, 0, 1, 1, 0, 0, 0]], dtype=torch.bool)
    known = torch.where(mask, lowest, 0.0)
    agree(
        lambda x, m: (
            (x + known).softmax(-1),
            (x + m).softmax(-1),
            x.masked_fill(mask, lowest).softmax(-1),
            (x + torch.where(x > 1, lowest, 0.0)).softmax(-1),
        ),
        drawn(4, 8),
        known,
    )


def test_integers_that_32_bits_cannot_hold_are_refused_when_they_come(simulator: None) -> None:
    program = delegatekit.lower(as_module(lambda i: i + 1), (WHOLE,), backends=["qnn"])
    method = delegatekit.load(program.buffer)["forward"]
    with pytest.raises(ExecutionError, match="input 0 has the number 1099511627776: the device computes in 32 bits"):
        method(torch.full_like(WHOLE, 2**40))


def test_what_the_processor_has_no_form_of_is_refused_in_words() -> None:
    partitioner = QnnPartitioner(QnnOptions(validate=False))
    assert refusals(partitioner, lambda x: x % 3, drawn(4)) == ["other = 3: a power of two is taken"]
    assert refusals(partitioner, lambda i: i * i, WHOLE) == [
        "a product of int64 tensors may leave the 32 bits that the device computes in"
    ]
    assert refusals(partitioner, lambda i: i <= 1 << 40, WHOLE) == [
        "other = 1099511627776: the device computes in 32 bits"
    ]
    assert refusals(partitioner, torch.isnan, drawn(4)) == [REFUSED["aten.isnan.default"]]
    assert refusals(partitioner, lambda i: i & 3, WHOLE) == [REFUSED["aten.bitwise_and.Scalar"]]
    (reason,) = refusals(partitioner, lambda i: i + 1, torch.ones(1, 1, 1, 1, 2, dtype=torch.int64))
    assert "4 are taken" in reason
