"""Functions with steps are equal to eager's, on both sides of each step."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from delegatekit_xnnpack.operators.steps import significant_bits


def _around_steps() -> torch.Tensor:
    halves = torch.arange(-40, 41) / 4.0
    above, below = (halves.nextafter(torch.tensor(end)) for end in (math.inf, -math.inf))
    above, below = (torch.where(halves == 0, 1e-30 * side, near) for side, near in ((1, above), (-1, below)))
    large = torch.tensor([2.0**22 + 0.5, 2.0**22 + 1.5, 2.0**23 - 0.5, 2.0**23 + 1, 2.0**24, 1e20, math.inf])
    return torch.cat([halves, above, below, large, -large, torch.randn(100)])


@pytest.mark.parametrize(
    "function",
    [
        torch.trunc,
        torch.round,
        torch.frac,
        torch.sign,
        lambda x: F.threshold(x, 0.0, 0.0),
        lambda x: F.threshold(x, 0.0, -2.0),
        lambda x: F.threshold(x, 0.25, 0.0),
        lambda x: F.threshold(x, -1.5, 20.0),
        F.hardshrink,
        lambda x: F.hardshrink(x, 1.25),
        F.softshrink,
        lambda x: F.softshrink(x, 1.25),
    ],
)
def test_both_sides_of_each_step_are_equal_to_eager(function, lower_whole):
    x = _around_steps()
    result, expected = lower_whole(function, x).run()[0], function(x)
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("divisor", [3.0, -2.0, 0.5, 10, 7])
@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_rounded_quotients_by_short_numbers_are_equal_to_eager(divisor, mode, lower_whole):
    whole = torch.arange(-3000.0, 3000.0) * divisor
    near = [whole.nextafter(torch.tensor(end)) for end in (math.inf, -math.inf)]
    x = torch.cat([whole, *(side[side.abs() > 1e-30] for side in near)])  # XNNPACK flushes smaller numbers to 0
    assert torch.equal(
        lower_whole(lambda x: torch.div(x, divisor, rounding_mode=mode), x).run()[0],
        torch.div(x, divisor, rounding_mode=mode),
    )


def test_quotients_of_tensors_are_cut_off_as_in_eager(lower_whole):
    x, y = 100 * torch.randn(500), torch.randn(500)
    assert torch.equal(lower_whole(lambda x, y: torch.div(x, y, rounding_mode="trunc"), x, y).run()[0], (x / y).trunc())


@pytest.mark.parametrize("divisor", [1.0, -1.0, 2.0, 1024])
@pytest.mark.parametrize("function", [torch.fmod, torch.remainder], ids=["fmod", "remainder"])
def test_remainders_of_powers_of_two_are_equal_to_eager(function, divisor, lower_whole):
    x = torch.cat([torch.randn(500), 1e4 * torch.randn(500), torch.arange(-20, 20) / 2.0])
    assert torch.equal(lower_whole(lambda x: function(x, divisor), x).run()[0], function(x, divisor))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda x: torch.div(x, x + 1, rounding_mode="floor"), "may be rounded up to the next whole number"),
        (lambda x: torch.div(x, 0.1, rounding_mode="floor"), "binary digits: quotients may be rounded up"),
        (lambda x: torch.div(x, 0.0, rounding_mode="floor"), "other has 24 binary digits"),
        (lambda x: torch.fmod(x, 3.0), "other is not a power of two"),
        (lambda x: torch.fmod(x, x), "other is computed"),
        (lambda x: torch.remainder(x, 0.5), "other is less than 1"),
        (lambda x: F.threshold(x, math.inf, 0.0), "threshold = inf is not a finite"),
        (lambda x: F.softplus(x, 1.0, 5.0), "threshold = 5.0: XNNPACK's nodes compute no threshold below 17"),
        (lambda x: F.softplus(x, -1.0), "beta = -1.0 is not a positive"),
        (lambda x: torch.where(x > 0, x, 0.0), "gt_scalar is bool: only float32, float16 and bfloat16 are taken"),
        (lambda x: torch.where(torch.eye(4, 5) > 0, x, x + 1), "both sides, are computed: XNNPACK has no comparison"),
        (lambda x: torch.where(torch.eye(4, 5) > 0, x, math.nan), "the constant side has a NaN"),
    ],
)
def test_what_is_not_exact_is_refused(model, reason, refusals):
    assert any(reason in why for why in refusals(model, torch.randn(4, 5)))


def test_significant_bits_are_those_of_the_longest_number():
    assert significant_bits(torch.tensor([1.0, -0.25, 1024.0])) == 1
    assert significant_bits(torch.tensor([1.0, 3.0, 0.75])) == 2
    assert significant_bits(torch.tensor([100.0])) == 5
    assert significant_bits(torch.tensor([0.1])) == 24
    assert significant_bits(torch.tensor([1.0, 0.0])) == significant_bits(torch.tensor([math.inf])) == 24
