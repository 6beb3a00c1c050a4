"""The parts of numbers, against PyTorch: bit by bit where nothing is rounded, else in double precision."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from delegatekit_conformance.testkit import compare, lower, refusals
from delegatekit_coreml.options import CoreMLOptions
from delegatekit_coreml.support import CoreMLPartitioner
from delegatekit_toolkit.accuracy import tolerance

SINGLE = {"precision": "float32"}
#: Two functions after one another, and four.
TWO, FOUR = (tolerance("float32", "float32", 1, depth) for depth in (2, 4))
SPECIAL = torch.tensor([0.0, 1.5, -2.0, math.inf, -math.inf, math.nan])


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_what_is_no_number_is_found(precision: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf(), x.signbit(), x.nan_to_num(1, 2, 3)

    compare(lower(function, SPECIAL, backend="coreml", options={"precision": precision}))


def test_extremes_ignore_what_is_no_number() -> None:
    x, y = torch.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    inputs = x.contiguous(), y.contiguous()
    compare(lower(lambda x, y: (x.fmax(y), x.fmin(y[:1])), *inputs, backend="coreml", options=SINGLE))


def test_signs_are_copied() -> None:
    inputs = torch.randn(3, 5), torch.randn(5)
    compare(lower(lambda x, y: (x.copysign(y), x.copysign(-2.0)), *inputs, backend="coreml", options=SINGLE))


def test_angles_agree_with_double_precision() -> None:
    points = torch.tensor([-3.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 4.0, 1e6])
    y, x = points[:, None], points[None]
    compare(lower(torch.atan2, y, x, backend="coreml", options=SINGLE), tolerance=TWO)


def test_angles_of_infinities_zeros_and_nan_are_pytorchs() -> None:
    points = torch.tensor([float("-inf"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("nan")])
    y, x = points[:, None], points[None]
    for precision in ("float16", "float32"):
        lowered = lower(torch.atan2, y, x, backend="coreml", options={"precision": precision})
        # Between 2 and 4 the numbers of float16 are 2^-9 apart.
        torch.testing.assert_close(lowered.run()[0], torch.atan2(y, x), atol=2.0**-9, rtol=0, equal_nan=True)


@pytest.mark.parametrize("function", [torch.asinh, torch.acosh])
def test_inverse_hyperbolic_functions_are_exact_near_and_far(function: Any) -> None:
    sizes = torch.logspace(-6, 30, 80)
    x = torch.cat([sizes + 1 if function is torch.acosh else sizes, -sizes if function is torch.asinh else sizes + 1])
    # A square, a root, a sum and a logarithm.
    compare(lower(function, x, backend="coreml", options=SINGLE), tolerance=FOUR)
    half = lower(function, x.clamp(-6e4, 6e4), backend="coreml")
    one = tolerance("float32", "float16", 1)
    torch.testing.assert_close(half.run()[0], function(x.clamp(-6e4, 6e4).half().float()), rtol=one, atol=one / 2)


def test_decimals_are_rounded() -> None:
    x = torch.tensor([1.2345, -7.6543, 123.456, 0.05])
    lowered = lower(lambda x: (x.round(decimals=2), x.round(decimals=-1)), x, backend="coreml", options=SINGLE)
    compare(lowered, tolerance=TWO)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_bits_are_shifted(dtype: torch.dtype) -> None:
    x, places = torch.tensor([5, -7, 1000, -1], dtype=dtype), torch.tensor([0, 1, 5, 3], dtype=dtype)
    compare(lower(lambda x: (x << 3, x >> 2, x >> places, x << places), x, backend="coreml"))


def test_computed_shifts_are_refused() -> None:
    places = torch.tensor([0, 1])
    found = refusals(CoreMLPartitioner(CoreMLOptions()), torch.bitwise_left_shift, places, places)
    assert found == ["other is computed: a number or a constant is taken"]


def test_reductions_along_no_axes_are_refused() -> None:
    found = refusals(CoreMLPartitioner(CoreMLOptions()), lambda x: torch.any(x, dim=()), torch.ones(2))
    assert found == ["dim is empty"]


def test_integers_between_fractions_become_numbers() -> None:
    for dtype in (torch.int32, torch.int64):
        n = torch.tensor([-3, 0, 5]).to(dtype)
        compare(lower(lambda x: (x.clamp(0.5), x.clamp(0.5, 3), x.clamp(max=-0.5)), n, backend="coreml"))


def test_powers_of_two_scale() -> None:
    compare(
        lower(torch.ldexp, torch.randn(4), torch.tensor([0, 3, -2, 10]), backend="coreml", options=SINGLE),
        tolerance=TWO,
    )
