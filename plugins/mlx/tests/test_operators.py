"""Operators where MLX needs care: what is written otherwise, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from delegatekit_conformance import testkit
from delegatekit_toolkit.testing import float32_tolerance

_SPECIAL = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 2.0, -3.5])


def _lower(model: Any, *inputs: torch.Tensor) -> testkit.Lowered:
    return testkit.lower(model, *inputs, backend="mlx")


def test_the_error_function_has_its_digits_near_zero() -> None:
    x = torch.tensor([1e-6, -3e-5, 1e-3, 0.2, 3.0])
    lowered = _lower(torch.erf, x)
    (got,), (want,) = lowered.run(), lowered.eager(dtype=torch.float64)
    assert float(((got - want) / want).abs().max()) < float32_tolerance(2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_sigmoids_of_halves_are_not_zero(dtype: torch.dtype) -> None:
    x = torch.linspace(-16, 16, 65).to(dtype)
    (got,), want = _lower(torch.sigmoid, x).run(), torch.sigmoid(x.double()).to(dtype)
    torch.testing.assert_close(got, want, rtol=2 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_of_halves_have_pytorchs_epsilon(dtype: torch.dtype) -> None:
    x = torch.full((2, 4), 1e-3).to(dtype)
    lowered = _lower(lambda value: functional.rms_norm(value, (4,)), x)
    torch.testing.assert_close(lowered.run(), lowered.eager())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_long_sums_of_halves_keep_their_digits(dtype: torch.dtype) -> None:
    x = torch.ones(4000, dtype=dtype)
    for model in (lambda value: value.cumsum(0)[-1:], lambda value: (value * 30).mean(0, keepdim=True)):
        lowered = _lower(model, x)
        torch.testing.assert_close(lowered.run(), lowered.eager())


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_place_of_nan_is_the_first_one(name: str) -> None:
    x = torch.tensor([[1.0, torch.nan, 3.0, torch.nan], [4.0, 2.0, 4.0, 2.0]])
    testkit.compare(_lower(lambda value: getattr(value * 1, name)(1), x))


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_stay_in_order(descending: bool) -> None:
    x = torch.tensor([2.0, 1.0, 2.0, torch.nan, 1.0, torch.inf, 2.0])
    testkit.compare(_lower(lambda value: tuple(torch.sort(value * 1, stable=True, descending=descending)), x))


@pytest.mark.parametrize(
    "model",
    [
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        torch.remainder,
        torch.fmod,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    ],
    ids=["floor", "remainder", "fmod", "trunc"],
)
def test_integers_are_divided_as_in_pytorch(model: Any) -> None:
    x = torch.tensor([7, -7, 7, -7, 6, 0, -(2**31)], dtype=torch.int32)
    y = torch.tensor([2, 2, -2, -2, -3, 5, 3], dtype=torch.int32)
    testkit.compare(_lower(lambda a, b: model(a, b) + 0 * a, x, y))
    testkit.compare(_lower(lambda a, b: model(a, b) + 0 * a, x.long() * (1 << 31), y.long()))


@pytest.mark.parametrize("model", [torch.remainder, torch.fmod, torch.floor_divide])
def test_rests_of_divisions_are_exact(model: Any) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(200) * 50, torch.randn(200)
    x, y = torch.cat([x, _SPECIAL]), torch.cat([y, _SPECIAL.flip(0)])
    lowered = _lower(lambda a, b: model(a, b) * 1, x, y)
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool])
def test_bits_are_joined(dtype: torch.dtype) -> None:
    n, other = torch.arange(-40, 40).to(dtype), torch.arange(80).flip(0).to(dtype)
    mask = True if dtype == torch.bool else 5
    testkit.compare(_lower(lambda x, y: (x & y, x | y, x ^ y, ~x, x & mask), n, other))


def test_large_integers_are_exact() -> None:
    x = torch.tensor([2**40 + 1, -(2**33), 5])
    testkit.compare(_lower(lambda value: ((value + 2**35 + 1) * 3).clamp(max=2**42 + 1).cumsum(0), x))


def test_padding_beyond_the_window_of_a_transposed_convolution() -> None:
    torch.manual_seed(0)
    layer = torch.nn.ConvTranspose2d(2, 3, (1, 2), stride=3, padding=(2, 3))
    testkit.compare(_lower(layer, torch.randn(1, 2, 5, 6)), tolerance=float32_tolerance(8))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_convolutions(axes: int, transposed: bool) -> None:
    kind = getattr(torch.nn, f"Conv{'Transpose' * transposed}{axes}d")
    torch.manual_seed(0)
    layer = kind(4, 8, 3, stride=2, padding=1, groups=2)
    testkit.compare(_lower(layer, torch.randn(2, 4, *[7] * axes)), tolerance=float32_tolerance(108))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_images_are_pooled(ceil_mode: bool) -> None:
    x = torch.randn(3, 7, 9)
    testkit.compare(_lower(torch.nn.MaxPool2d(3, 2, 1, ceil_mode=ceil_mode), x))
    places = torch.nn.MaxPool2d((2, 3), 2, 1, dilation=(2, 1), ceil_mode=ceil_mode, return_indices=True)
    testkit.compare(_lower(places, x))
    for settings in ({}, {"count_include_pad": False}, {"divisor_override": 3}):
        pool = torch.nn.AvgPool2d(3, 2, 1, ceil_mode=ceil_mode, **settings)
        testkit.compare(_lower(pool, x), tolerance=float32_tolerance(9))


def test_rows_that_a_mask_hides_become_zero() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 4, 8) for _ in range(3))
    mask = torch.ones(4, 4).tril(-1).bool()
    for given in (mask, torch.zeros(4, 4).masked_fill(~mask, -torch.inf)):
        lowered = _lower(functional.scaled_dot_product_attention, query, key, value, given)
        testkit.compare(lowered, tolerance=float32_tolerance(32))


def test_heads_are_grouped() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)

    def attention(*operands: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*operands, is_causal=True, enable_gqa=True)

    testkit.compare(_lower(attention, query, key, value), tolerance=float32_tolerance(32))


def test_rows_are_added_at_places() -> None:
    x, rows = torch.zeros(5, 3), torch.arange(12.0).reshape(4, 3)
    at = torch.tensor([1, -1, 1, 0])
    for model in (
        lambda a, b, c: a.index_put((c,), b, accumulate=True),
        lambda a, b, c: a.index_add(0, c % 5, b),
        lambda a, b, c: a.scatter_add(0, (c % 5)[:, None].expand(4, 3), b),
        lambda a, b, c: a.scatter_reduce(0, (c % 5)[:, None].expand(4, 3), b, "mean", include_self=False),
    ):
        lowered = _lower(lambda a, b, c, model=model: model(a, b, c) * 2, x, rows, at)
        testkit.compare(lowered, tolerance=float32_tolerance(4))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_images_are_resized(mode: str) -> None:
    corners = {} if mode == "nearest" else {"align_corners": False}
    x = torch.randn(1, 2, 5, 7)

    def resized(image: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(image, (8, 3), mode=mode, **corners)  # type: ignore[arg-type]

    testkit.compare(_lower(resized, x), tolerance=float32_tolerance(16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_windows_with_gaps(dtype: torch.dtype) -> None:
    """MLX's reductions of views are wrong there, or end the process."""
    x = torch.randint(-9, 9, (3, 9)).to(dtype)
    for gap in (2, 3):
        testkit.compare(_lower(torch.nn.MaxPool1d(3, 1, dilation=gap), x))


def test_any_of_bytes_is_a_byte() -> None:
    testkit.compare(_lower(lambda x: (x + 1).any(1), torch.tensor([[255, 254], [255, 255]], dtype=torch.uint8)))
