"""Elementwise operators against eager PyTorch, through the stock runtime."""

from __future__ import annotations

import math

import pytest
import torch
from processors import needs_avx512
from torch import nn
from torch.nn import functional as F


def _values() -> torch.Tensor:
    """Numbers on both sides of 0 and of the breakpoints of every activation."""
    return torch.linspace(-7.3, 7.1, 60).reshape(3, 20)


@pytest.mark.parametrize(
    "function",
    [torch.abs, torch.ceil, torch.floor, torch.neg, torch.square, torch.sin, torch.cos, torch.tanh, torch.sigmoid],
    ids=lambda function: function.__name__,
)
def test_functions_agree_with_eager(function, matches_eager):
    matches_eager(function, _values())


@pytest.mark.parametrize(
    "function",
    [torch.log, torch.log2, torch.log10, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.exp],
    ids=lambda function: function.__name__,
)
def test_functions_of_positive_numbers_agree_with_eager(function, matches_eager):
    matches_eager(function, _values().abs() + 0.01)


def test_reciprocal_square_root_of_zero_is_infinite(lower_whole):
    lowered = lower_whole(torch.rsqrt, torch.tensor([0.0, 4.0]))
    assert lowered.run()[0].tolist() == [math.inf, 0.5]


@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0.5, 2, 3, 4])
def test_powers_agree_with_eager(exponent, matches_eager):
    matches_eager(lambda x: x**exponent, _values().abs() + 0.3)


def test_power_of_negative_base_keeps_the_sign(matches_eager):
    matches_eager(lambda x: (x**3, x**2, x**-1), _values())


@pytest.mark.parametrize(
    "activation",
    [
        F.relu,
        F.relu6,
        F.hardtanh,
        F.hardswish,
        F.hardsigmoid,
        F.silu,
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        F.elu,
        lambda x: F.elu(x, alpha=0.3),
        F.selu,
        F.leaky_relu,
        lambda x: F.leaky_relu(x, 1.5),
        lambda x: F.leaky_relu(x, -0.5),
        lambda x: F.leaky_relu(x, 0.0),
        lambda x: x.clamp(-0.5),
        lambda x: x.clamp(max=0.25),
        lambda x: x.clamp(-1.0, 2.0),
        lambda x: x.clamp(1.0, 1.0),
        lambda x: F.hardtanh(x, -1e300, 1.0),
        lambda x: F.glu(x, -1),
        lambda x: F.glu(x.reshape(6, 10), 0),
    ],
)
def test_activations_agree_with_eager(activation, matches_eager):
    matches_eager(activation, _values())


def test_gelu_tanh_survives_numbers_whose_cube_overflows(matches_eager):
    numbers = torch.tensor([-1e30, -1e13, -200.0, 200.0, 1e12])
    lowered = matches_eager(lambda x: F.gelu(x, approximate="tanh"), numbers)
    assert lowered.nodes["Gelu"] == 0  # XNNPACK's is the erf form


@pytest.mark.parametrize(
    ("shape", "slopes"),
    [((3, 20), 20), ((2, 5, 4), 5), ((2, 3, 4, 5), 3), ((1, 2, 3, 4, 5), 2), ((7,), 1), ((2, 3), 1)],
)
def test_prelu_of_any_rank_agrees_with_eager(shape, slopes, matches_eager):
    module = nn.PReLU(slopes)
    nn.init.normal_(module.weight)
    matches_eager(module, torch.randn(shape))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 3, 4)),
        ((2, 1, 4), (1, 3, 1)),
        ((), (3,)),
        ((), ()),
        ((5, 1), (6,)),
        ((2, 1, 2, 1, 2, 1), (1, 3, 1, 3, 1, 3)),
        ((2, 3, 4, 5, 6, 2), (6, 1)),
    ],
)
@pytest.mark.parametrize(
    "function",
    [
        torch.add,
        torch.sub,
        torch.mul,
        torch.maximum,
        torch.minimum,
        lambda a, b: torch.add(a, b, alpha=-2.5),
        lambda a, b: torch.sub(a, b, alpha=3),
        lambda a, b: a / (b * b + 1.0),
    ],
)
def test_arithmetic_broadcasts_like_eager(function, left, right, matches_eager):
    matches_eager(function, torch.randn(left), torch.randn(right))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 2,
        lambda x: x - 2.5,
        lambda x: 1 - x,
        lambda x: x * 3,
        lambda x: x / 3,
        lambda x: 2.5 / (x * x + 1),
        lambda x: torch.rsub(x, 3, alpha=2),
        lambda x: x + torch.tensor(2),
        lambda x: torch.tensor(2.5, dtype=torch.float64) * x,
    ],
)
def test_numbers_as_operands_agree_with_eager(function, matches_eager):
    matches_eager(function, _values())


def test_an_operand_used_twice_agrees_with_eager(matches_eager):
    matches_eager(lambda x: (x * x, x + x, x - x), _values())


@pytest.mark.parametrize(("shape", "target"), [((2, 1, 3), (4, 2, 5, 3)), ((1,), (3, 2)), ((2, 3, 1), (2, 3, 4))])
def test_expansion_agrees_with_eager(shape, target, matches_eager):
    matches_eager(lambda x: x.expand(target).neg(), torch.randn(shape))


@pytest.mark.parametrize(
    ("shape", "repeats"), [((2, 3), (2, 1)), ((2, 3), (3, 2)), ((3,), (2, 2)), ((2, 1, 3), (1, 4, 2))]
)
def test_repetition_agrees_with_eager(shape, repeats, matches_eager):
    matches_eager(lambda x: x.repeat(repeats).neg(), torch.randn(shape))


@pytest.mark.parametrize(
    "function",
    [
        torch.relu,
        lambda x: x.clamp(-1, 1),
        torch.add,
        torch.mul,
        torch.sigmoid,
        torch.tanh,
        F.elu,
        torch.abs,
        F.hardswish,
        F.leaky_relu,
        torch.neg,
        torch.floor,
        pytest.param(torch.log, marks=needs_avx512),
        torch.sqrt,
    ],
)
def test_nan_stays_nan(function, lower_whole):
    x = torch.tensor([math.nan, 1.0, math.nan, 2.0])
    inputs = (x, x.flip(0)) if function in (torch.add, torch.mul) else (x,)
    lowered = lower_whole(function, *inputs)
    assert lowered.run()[0].isnan().tolist() == function(*inputs).isnan().tolist()


@pytest.mark.parametrize("exponent", [-4, -1.5, -0.25, 0.25, 0.75, 1, 1.25, 2.5, 3.75, 5, 7, 8])
def test_powers_of_quarters_agree_with_eager(exponent, matches_eager):
    matches_eager(lambda x: x**exponent, 0.3 + torch.rand(500))


@pytest.mark.parametrize("weight", [-0.5, 0.0, 0.3, 0.5, 1.0, 2.5])
def test_interpolation_by_a_number_agrees_with_eager(weight, matches_eager):
    matches_eager(lambda x, y: torch.lerp(x, y, weight), torch.randn(3, 4), torch.randn(4))


@pytest.mark.parametrize("which", ["both", "min", "max"])
def test_bounds_that_are_tensors_agree_with_eager(which, lower_whole):
    x, low, high = torch.randn(3, 4), torch.randn(4), torch.randn(3, 1)
    bounds = {"min": low, "max": high} if which == "both" else {which: low}

    def clamp(x, *bounds):
        return torch.clamp(x, **dict(zip(("min", "max") if which == "both" else (which,), bounds, strict=True)))

    assert torch.equal(lower_whole(clamp, x, *bounds.values()).run()[0], clamp(x, *bounds.values()))


MASK = torch.rand(4, 5) > 0.5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.masked_fill(MASK, -math.inf),
        lambda x: x.masked_fill(MASK, -1e9),
        lambda x: torch.where(MASK, x, 0.0),
        lambda x: torch.where(MASK[0], torch.arange(5.0), x),
        lambda x: torch.where(torch.zeros(3, 1, 1, 1, dtype=torch.bool), 1.0, x),
        lambda x: x.tril(1),
        lambda x: x.triu(-2),
    ],
)
def test_constant_masks_are_exact(function, lower_whole):
    x = torch.randn(2, 4, 5)
    x[0, 0, 0], x[0, 1, 1], x[0, 2, 2] = math.inf, -math.inf, 3e38
    assert torch.equal(lower_whole(function, x).run()[0], function(x))
