"""Operators where OpenVINO needs care: what is written otherwise, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from delegatekit_conformance import testkit
from delegatekit_openvino.options import OpenVINOOptions
from delegatekit_openvino.support import OpenVINOPartitioner
from delegatekit_toolkit.testing import float32_tolerance


def _lower(model: object, *inputs: torch.Tensor) -> testkit.Lowered:
    return testkit.lower(model, *inputs, backend="openvino")


def test_logarithms_near_one_have_their_digits() -> None:
    for function, x in (
        (torch.log, torch.tensor([1.0000003, 1.001, 0.999, 0.5, 3.0, 1e-38, 1e38])),
        (torch.log1p, torch.tensor([3e-7, -1e-3, 2.0, -0.6, 1e30])),
        (functional.softplus, torch.tensor([-15.0, -5.0, 0.5, 30.0])),
    ):
        lowered = _lower(lambda value, function=function: function(value), x)
        (got,), (want,) = lowered.run(), lowered.eager(dtype=torch.float64)
        assert float(((got - want) / want).abs().max()) < float32_tolerance()


def test_exponentials_are_finite_as_long_as_their_type_is() -> None:
    x = torch.tensor([88.3, 88.5, 88.7, 88.72, 88.73, 100.0, torch.inf, 88.0, 1.0, 0.0, -80.0, -torch.inf])
    for function, given in ((torch.exp, x), (torch.expm1, x), (torch.exp2, x / 0.6931472)):
        lowered = _lower(lambda value, function=function: function(value), given)
        for engine in lowered.engines:
            torch.testing.assert_close(
                lowered.run(engine=engine), lowered.eager(), rtol=8 * float32_tolerance(), atol=0
            )


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    x = torch.randn(1000) * torch.logspace(-30, 30, 1000)
    testkit.compare(_lower(lambda value: value.to(torch.bfloat16) * 2, x))
    largest = torch.finfo(torch.float32).max
    large = torch.randn(1000).sign() * (1 + torch.rand(1000)) * 2.0 ** torch.randint(108, 128, (1000,))
    ends = torch.tensor([largest, -largest, 3.3961775e38, 3.3895314e38, torch.inf, -torch.inf, torch.nan])
    testkit.compare(_lower(lambda value: value.to(torch.bfloat16).float() * 0.5, torch.cat([large, ends])))


def test_infinite_bounds_hold_nothing_back() -> None:
    x = torch.randn(30) * 1e30
    testkit.compare(_lower(lambda value: -functional.hardtanh(value, -torch.inf, 1.0), x))


def test_an_index_into_a_part_is_looked_up_among_all_elements() -> None:
    x, index = torch.randn(4, 5, 6), torch.randint(0, 5, (2, 3, 4))
    testkit.compare(_lower(lambda value, places: value.gather(1, places) * 2, x, index))


def test_padding_beyond_the_kernel_is_refused() -> None:
    layer = torch.nn.Conv2d(2, 2, 1, padding=2)
    partitioner = OpenVINOPartitioner(OpenVINOOptions())
    assert testkit.refusals(partitioner, layer, torch.ones(1, 2, 4, 4)) == ["padding = 2 for a kernel of extent 1"]


@pytest.mark.parametrize("dilation", [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1)])
@pytest.mark.parametrize("channels", [1, 2])
def test_dilated_convolutions_over_three_axes(dilation: tuple[int, ...], channels: int) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Conv3d(1, channels, 2, dilation=dilation), torch.randn(1, 1, 5, 6, 7)
    if channels == 1 and dilation[0] != dilation[1]:
        (reason,) = testkit.refusals(OpenVINOPartitioner(OpenVINOOptions()), layer, x)
        assert reason == f"dilation = {list(dilation)} of one channel"
    else:
        testkit.compare(_lower(layer, x), tolerance=float32_tolerance(8))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_bits_are_joined(dtype: torch.dtype) -> None:
    n, other = torch.arange(-40, 40).to(dtype), torch.arange(80).flip(0).to(dtype)
    testkit.compare(_lower(lambda x, y: (x & y, x | y, x ^ y, x & (True if dtype == torch.bool else 5)), n, other))


def test_bits_of_small_integers_are_refused() -> None:
    n = torch.arange(64, dtype=torch.uint8)
    (reason,) = testkit.refusals(OpenVINOPartitioner(OpenVINOOptions()), lambda x: x & 5, n)
    assert reason.endswith("uint8: int32, int64 or bool are taken")


def test_what_openvino_would_compute_otherwise_is_refused() -> None:
    partitioner, n = OpenVINOPartitioner(OpenVINOOptions()), torch.tensor([[2**30, 2**29, 1]], dtype=torch.int32)
    assert testkit.refusals(partitioner, lambda x: x.sum(1, dtype=torch.int32), n) == [
        "a sum of integers may leave the 24 bits in which OpenVINO adds them"
    ]
    for function in (lambda x: x & 0xFFFFFFFF, lambda x: x.long() | 1 << 40, lambda x: x.long() ^ (-1 << 33)):
        (reason,) = testkit.refusals(partitioner, function, n)
        assert reason.endswith("the device computes in 32 bits")
    assert testkit.refusals(partitioner, lambda x: torch.any(x, dim=()), n) == ["dim is empty"]
    testkit.compare(_lower(lambda x: ((x > 4).sum(1, dtype=torch.int32), x & 0x7FFFFFFF), n))


def test_integers_between_fractions_become_numbers() -> None:
    for dtype in (torch.int32, torch.int64):
        n = torch.tensor([-3, 0, 5]).to(dtype)
        testkit.compare(_lower(lambda x: (x.clamp(0.5), x.clamp(0.5, 3), x.clamp(max=-0.5)), n))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_convolutions(groups: int, transposed: bool) -> None:
    kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    torch.manual_seed(0)
    layer = kind(4, 8, 3, stride=2, padding=1, groups=groups)
    testkit.compare(_lower(layer, torch.randn(2, 4, 7, 9)), tolerance=float32_tolerance(36))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_images_without_a_batch_are_pooled(ceil_mode: bool) -> None:
    x = torch.randn(3, 7, 9)
    testkit.compare(_lower(torch.nn.MaxPool2d(3, 2, 1, ceil_mode=ceil_mode), x))
    testkit.compare(_lower(torch.nn.AvgPool2d(3, 2, 1, ceil_mode=ceil_mode), x), tolerance=float32_tolerance(9))


def test_conversions_to_half_precision_round() -> None:
    x = torch.randn(300) * torch.logspace(-9, 6, 300)
    beyond = torch.tensor([65519.9, 65520.0, -1e9, 1e-8, torch.inf])
    testkit.compare(_lower(lambda value: value.half().float() * 2, torch.cat([x, beyond])))


def test_a_table_is_a_factor_and_a_weight_at_once() -> None:
    """OpenVINO takes a constant that both read in the same form."""
    torch.manual_seed(0)
    table, row = torch.randn(4, 4), torch.randn(4)
    lowered = _lower(lambda x, y: (x @ table, functional.linear(y, table, row)), torch.randn(4, 4), torch.randn(4, 4))
    bound = float32_tolerance(4)
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=bound, atol=bound)


def test_averages_count_padding_in_every_channel() -> None:
    x = torch.randn(2, 3, 5, 6) + 1
    for border in ((1, 0), (0, 2), (2, 1)):
        lowered = _lower(lambda value, border=border: functional.avg_pool2d(value, (4, 5), 3, border), x)
        testkit.compare(lowered, tolerance=float32_tolerance(20))


def _large_integers(seed: int, *shape: int) -> torch.Tensor:
    """Small numbers, numbers next to 2^24, from which on float32 lacks some, and any others, of int32."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, shape, generator=generator)
    signs = 1 - 2 * torch.randint(0, 2, shape, generator=generator)
    small = torch.randint(1, 300, shape, generator=generator) * signs
    middle, any_one = signs * (1 << 24) + small, torch.randint(1, 2**31 - 1, shape, generator=generator)
    return torch.where(kind == 0, small, torch.where(kind == 1, middle, signs * any_one)).to(torch.int32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")),
        lambda x, y: (x // 4, x % 4, torch.fmod(x, 4), x // -7, x % 1000003),
        lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, x < 16777217, x == -16777219),
        lambda x, y: (torch.where(x < y, x, y), torch.relu(x), torch.maximum(x, y), x.clamp(-16777219, 16777221)),
        lambda x, y: (x.amax(-1), x.amin(0), x.amax((0, 1), keepdim=True), x.max(-1), x.cummin(-1), x.sort(-1)[0]),
    ],
    ids=["division", "division by numbers", "comparison", "choice", "along axes"],
)
def test_large_integers_are_exact(function: object) -> None:
    x, y = _large_integers(0, 30, 40), _large_integers(1, 30, 40)
    testkit.compare(_lower(function, x, y))
    near = x + torch.arange(1, 31, dtype=torch.int32)[:, None]
    testkit.compare(_lower(function, x, torch.where(near == 0, 31, near)))


def test_booleans_are_compared_with_numbers() -> None:
    x = torch.tensor([True, False])
    aten = torch.ops.aten
    for compare in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
        for number in (-1, 0, 1, 2, 0.5, 1 << 25):
            testkit.compare(_lower(lambda value, f=compare.Scalar, other=number: f(value, other), x))


def test_sizes_of_a_joined_vector_are_not_its_numbers() -> None:
    x = torch.tensor([1.0, -2.0, 3.0, -4.0])
    lowered = _lower(
        lambda value: torch.cat([value[:2] + 1, value[2:]]) * 3 - torch.cat([value[:2] + 1, value[2:]]).abs(), x
    )
    testkit.compare(lowered)
    testkit.compare(_lower(lambda value: value.cummin(0)[0], torch.tensor([0.0, -2.0], dtype=torch.bfloat16)))


def test_a_vector_of_constants_has_its_sizes() -> None:
    for numbers in ([0.66, 0.3], [-0.66, 0.3], [-1.5, -2.0]):
        known = torch.tensor(numbers)
        lowered = _lower(lambda x, other=known: (torch.atan2(x, other), x + other.abs()), torch.tensor([1.54, -1.5]))
        torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=float32_tolerance(), atol=float32_tolerance())


def test_quotients_of_float16_have_their_digits() -> None:
    x = torch.arange(-100.0, 100, 2.5).half()
    testkit.compare(_lower(lambda value: value.round(decimals=-1), x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attention_whose_result_is_read_twice(dtype: torch.dtype) -> None:
    """OpenVINO would compute all of it as one, and crash."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, length, 4).to(dtype) for length in (6, 5, 5))
    mask = torch.rand(6, 5) > 0.3

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        made = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return made * 3 - made.abs()

    lowered = _lower(attend, query, key, value, mask)
    bound = 12 * float32_tolerance(5) if dtype is torch.float32 else 4 * torch.finfo(dtype).eps
    testkit.compare(lowered, tolerance=bound)


@pytest.mark.parametrize("sizes", [(8,), (4, 2), (2, 2, 2)])
def test_eight_channels_of_eight_places_in_bfloat16(sizes: tuple[int, ...]) -> None:
    """OpenVINO would crash where it converts them from its own order."""
    torch.manual_seed(0)
    convolution = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[len(sizes) - 1](2, 8, 1)
    module = torch.nn.Sequential(convolution, torch.nn.ReLU()).bfloat16()
    lowered = _lower(module, torch.randn(3, 2, *sizes).bfloat16())
    testkit.compare(lowered, tolerance=4 * torch.finfo(torch.bfloat16).eps)


def test_infinite_numbers_are_refused_where_openvino_takes_them_for_zero() -> None:
    partitioner = OpenVINOPartitioner(OpenVINOOptions())
    x = torch.randn(2, 3)
    sizes = (({0: torch.export.Dim("n", min=2, max=9)},),)
    for function, words in (
        (lambda value: value + torch.inf, ["other is infinite"]),
        (lambda value: torch.inf - value, ["other is infinite"]),
        (lambda value: value / 0, ["other is 0, or has an infinite inverse"]),
    ):
        assert testkit.refusals(partitioner, function, x, dynamic_shapes=sizes) == words
    assert testkit.refusals(partitioner, lambda value: value * torch.inf, x) == ["other is infinite"]
    testkit.compare(_lower(lambda value: value + torch.inf, x))


def test_weights_are_multiplied_by_finite_numbers() -> None:
    """A weight that is 0 would become NaN."""
    partitioner, weight = OpenVINOPartitioner(OpenVINOOptions()), torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
    infinite, inverse = "is infinite", "is 0, or has an infinite inverse"
    for function, words in (
        (lambda y: y * torch.tensor([1.0, torch.inf]), f"other {infinite}"),
        (lambda y: y * 1e39, f"other {infinite}"),
        (lambda y: y / torch.tensor([1.0, 0.0]), f"other {inverse}"),
        (lambda y: y / torch.zeros(1), f"other {inverse}"),
        (lambda y: y / 1e-46, f"other {inverse}"),
        (lambda y: torch.add(torch.ones(2, 2), y, alpha=torch.inf), f"alpha {infinite}"),
        (lambda y: torch.addmm(torch.ones(2), y, weight[:, :2], alpha=torch.inf), f"alpha {infinite}"),
        (lambda y: functional.elu(y, torch.inf), "alpha = inf is not a finite number"),
    ):

        def model(x: torch.Tensor, f: Callable[[torch.Tensor], torch.Tensor] = function) -> torch.Tensor:
            return f(functional.linear(x, weight))

        assert testkit.refusals(partitioner, model, torch.randn(2, 3)) == [words]


def test_factors_have_finite_products() -> None:
    partitioner, weight = OpenVINOPartitioner(OpenVINOOptions()), torch.full((2, 3), 8.0)
    words = "with the constants before it, its factor is {}, and OpenVINO multiplies them beforehand"
    for function, number in (
        (lambda x: x * 2.0**70 * 2.0**70, "infinite"),
        (lambda x: x * torch.full((3,), 2.0**-70) / 2.0**70, "as good as 0"),
        (lambda x: functional.linear(x, weight) * 2.0**126, "infinite"),
        (lambda x: torch.tensor([2.0**126, 1.0]) * (x @ weight.mT), "infinite"),
    ):
        assert testkit.refusals(partitioner, function, torch.randn(2, 3)) == [words.format(number)]
    x = torch.full((2, 3), 2.0**-100)
    testkit.compare(_lower(lambda x: (x * 2.0**70 * 2.0**50, functional.linear(x, weight) * 2.0**120), x))


@pytest.mark.parametrize(
    ("indices", "rows"),
    [
        ((None, [0, 2]), (2, 2, 4, 5)),
        ((None, [0, 2, 1], [1, 0, 3]), (2, 3, 5)),
        ((None, None, [1, 0, 3], [0, 2, 1]), (2, 3, 3)),
        ((None, None, [[0, 1], [2, 3]], [[0], [1]]), (2, 3, 2, 2)),
        (([0, 1, 1], None, [1, 0, 3]), (3, 3, 5)),
        ((None, [0, 2, 1], None, [1, 0, 3]), (3, 2, 4)),
        ((None, [0, 2]), (5,)),
        ((None, 1), (2, 4, 5)),
    ],
)
def test_any_axes_are_indexed_to_write(indices: tuple[list[int] | int | None, ...], rows: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    places = [None if index is None else torch.tensor(index) for index in indices]
    x, values = torch.randn(2, 3, 4, 5), torch.randn(rows)
    testkit.compare(_lower(lambda a, b: torch.ops.aten.index_put.default(a * 2, places, b), x, values))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64])
def test_rows_are_written_in_any_type(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, rows = (torch.randint(-9, 9, shape, generator=generator).to(dtype) for shape in ((2, 5, 3), (2, 3, 3)))
    places = torch.tensor([4, -5, 2])
    testkit.compare(_lower(lambda a, b, at: torch.ops.aten.index_put.default(a * 2, [None, at], b), x, rows, places))
