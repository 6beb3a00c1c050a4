"""Operators where TOSA or its converter needs care: what is written otherwise, kept alive, and refused."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_toolkit.testing import call_of, float32_tolerance
from delegatekit_vgf.blob.container import unpack
from delegatekit_vgf.blob.spirv import read_graph
from delegatekit_vgf.options import VgfOptions
from delegatekit_vgf.support import VgfPartitioner


def _lower(model: object, *inputs: torch.Tensor) -> testkit.Lowered:
    return testkit.lower(model, *inputs, backend="vgf")


def test_inputs_that_change_nothing_stay_inputs() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    testkit.compare(_lower(lambda a, b: torch.add(a, b, alpha=0), x, y))


def test_results_that_are_equal_stay_several() -> None:
    testkit.compare(_lower(lambda x: (x.abs(), x.abs(), functional.adaptive_max_pool2d(x, 1)), torch.ones(1, 1, 1)))


def test_bounds_may_be_infinite() -> None:
    x = torch.randn(2, 3)
    testkit.compare(_lower(lambda value: (value.clamp(max=-torch.inf), value.clamp(-torch.inf, 0.5)), x))


def test_integers_between_fractions_become_numbers() -> None:
    n = torch.tensor([-3, 0, 5], dtype=torch.int32)
    testkit.compare(_lower(lambda x: (x.clamp(0.5), x.clamp(0.5, 3), x.clamp(max=-0.5)), n))


def test_infinity_times_a_known_zero_is_nan() -> None:
    x, zeros = torch.tensor([1.5, torch.inf, -torch.inf, torch.nan]), torch.zeros(2, 4)
    testkit.compare(_lower(lambda value: (value * 0.0, value * zeros + 1, (value.half() * 0).float() + 1), x))


def test_rows_of_halves_have_pytorchs_epsilon() -> None:
    x = torch.full((2, 4), 1e-3).half()
    lowered = _lower(lambda value: functional.rms_norm(value, (4,)), x)
    torch.testing.assert_close(lowered.run(), lowered.eager())


def test_sums_and_means_of_halves_are_those_of_float32() -> None:
    def function(x: torch.Tensor, small: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum((0, 1), keepdim=True), small.mean((0, 1), keepdim=True)

    x = torch.tensor([[6e4, -6e4, 6e4], [-6e4, 6e4, 1.0]]).half()
    lowered = _lower(function, x, torch.full((70, 70), 1e-4).half())
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=torch.finfo(torch.half).eps, atol=0)


def test_nan_and_infinity_count_as_in_pytorch() -> None:
    x = torch.tensor([[torch.nan, 0, -0.0, 2], [torch.inf, -1, 0, 0]])
    testkit.compare(_lower(lambda v: torch.linalg.vector_norm(v, 0, 1), x))
    testkit.compare(_lower(lambda v: functional.leaky_relu(v, torch.inf), x))


def test_products_of_float16_are_summed_in_float32() -> None:
    x = torch.tensor([[250.0, 250, 250, 0.5]]).half()
    weight = torch.tensor([[250.0, 250, -250, 1], [-250, -250, 250, 2]]).half()
    lowered = _lower(lambda left, right: (functional.linear(left, right), left @ right.t()), x, weight)
    testkit.compare(lowered, tolerance=2 * torch.finfo(torch.float16).eps)


def test_booleans_are_compared_with_numbers() -> None:
    truth = torch.tensor([True, False])
    testkit.compare(_lower(lambda x: (x == 2, x < 2, x == x.logical_not()), truth))


def test_powers_are_those_of_pytorch_for_all_signs() -> None:
    x = torch.tensor([[0.0, -0.0, 1, -2, 2.5, -1.5, 3]])
    y = torch.tensor([[0.0], [1], [-1], [2], [-3], [0.5], [-0.5]])
    lowered = _lower(torch.pow, x, y)
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_powers_of_and_to_nan_and_infinity_are_those_of_pytorch(dtype: torch.dtype) -> None:
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1, -1, 0.5, -0.5, 2, -3, 1.5], dtype=dtype)
    x, y = special[:, None], special[None]
    lowered = _lower(torch.pow, x.contiguous(), y.contiguous())
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=2e-3, atol=0, equal_nan=True)
    for number in (torch.nan, torch.inf, -torch.inf, 0.0, 1.5, 10.0, -2.5):
        lowered = _lower(lambda v, number=number: (torch.pow(v, number), torch.pow(number, v)), special)
        torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=2e-3, atol=0, equal_nan=True)


def test_whole_powers_have_their_digits() -> None:
    x = torch.linspace(-3, 3, 1000)
    for exponent in (5, 7, 8, 9, -5, -8):
        lowered = _lower(lambda value, exponent=exponent: value**exponent, x)
        (got,), (want,) = lowered.run(), lowered.eager(dtype=torch.float64)
        assert float(((got - want) / want).abs().max()) < float32_tolerance()


def test_tanh_has_its_digits_near_zero() -> None:
    x = torch.logspace(-6, 1, 50)
    for function in (torch.tanh, torch.expm1, torch.sinh):
        lowered = _lower(lambda value, function=function: function(value), x)
        (got,), (want,) = lowered.run(), lowered.eager(dtype=torch.float64)
        assert float(((got - want) / want).abs().max()) < float32_tolerance(4)


def test_integers_are_divided_downwards() -> None:
    n = torch.arange(-9, 10, dtype=torch.int32)
    testkit.compare(_lower(lambda value: (value // 4, value % 4, torch.fmod(value, 4)), n))


_FIRST, _SECOND = torch.tensor([[0, 2], [-1, 1]]), torch.tensor([1, 3])


@pytest.mark.parametrize(
    "indices", [(_FIRST, _SECOND), (None, _FIRST, _SECOND), (_FIRST, None, _SECOND), (None, _SECOND)], ids=str
)
def test_several_indices_name_places_together(indices: tuple[torch.Tensor | None, ...]) -> None:
    x = torch.randn(4, 5, 6)
    values = torch.ops.aten.index.Tensor(x, indices) * 2
    given = [item.int() for item in indices if item is not None]

    def put(value: torch.Tensor, written: torch.Tensor) -> tuple[torch.Tensor, ...]:
        once = torch.ops.aten.index_put(value, indices, written)
        twice = torch.ops.aten.index_put(
            torch.ops.aten.index_put(value, indices, written, True), indices, written, True
        )
        return once * 2, twice * 2

    def computed(value: torch.Tensor, *places: torch.Tensor) -> torch.Tensor:
        found = iter(places)
        return torch.ops.aten.index.Tensor(value, [None if item is None else next(found) for item in indices]) * 1

    testkit.compare(_lower(put, x, values), tolerance=1e-6)
    testkit.compare(_lower(computed, x, *given))


def test_numbers_for_one_place_are_added_one_after_the_other() -> None:
    x, source, index = torch.randn(4, 3), torch.randn(6, 3), torch.tensor([[0, 1, 1], [0, 1, 3], [0, 0, 3]])
    testkit.compare(_lower(lambda value, more: value.scatter_add(0, index, more), x, source), tolerance=1e-6)
    testkit.compare(_lower(lambda value: value.scatter(1, index[:, 2:] % 3, 5.0) * 1, x))


def test_computed_and_crowded_places_are_refused() -> None:
    x, places = torch.randn(4, 3), torch.tensor([1, 2], dtype=torch.int32)
    partitioner = VgfPartitioner(VgfOptions())
    put = torch.ops.aten.index_put.default
    (reason,) = testkit.refusals(partitioner, lambda value, at: put(value, [at], value[:2]), x, places)
    assert reason.endswith("are computed")
    index = torch.zeros(65, 3, dtype=torch.int64)
    (reason,) = testkit.refusals(
        partitioner, lambda value, more: value.scatter_add(0, index, more), x, torch.ones(65, 3)
    )
    assert reason == "65 numbers are added at one place"


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.bool])
def test_bits_are_joined(dtype: torch.dtype) -> None:
    n, other = torch.arange(-40, 40).to(dtype), torch.arange(80).flip(0).to(dtype)
    testkit.compare(_lower(lambda x, y: (x & y, x | y, x ^ y, x & (True if dtype == torch.bool else 5)), n, other))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_convolutions(groups: int, transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    torch.manual_seed(0)
    layer = kind(4, 8, 3, stride=2, padding=1, groups=groups)
    testkit.compare(_lower(layer, torch.randn(2, 4, 7, 9)), tolerance=float32_tolerance(36))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_images_without_a_batch_are_pooled(ceil_mode: bool) -> None:
    x = torch.randn(3, 7, 9)
    testkit.compare(_lower(nn.MaxPool2d(3, 2, 1, ceil_mode=ceil_mode), x))
    testkit.compare(_lower(nn.AvgPool2d(3, 2, 1, ceil_mode=ceil_mode), x), tolerance=float32_tolerance(9))


@pytest.mark.parametrize("size", [(7, 9), (2, 3), (12, 4), (10, 12), (5, 6), (1, 13)])
def test_the_nearest_pixels_are_those_of_pytorch(size: tuple[int, int]) -> None:
    testkit.compare(_lower(lambda value: functional.interpolate(value, size), torch.randn(1, 2, 5, 6)))


def test_windows_with_gaps_and_of_different_sizes_are_looked_up() -> None:
    x = torch.randn(1, 2, 9, 8)
    x[0, 0, 3, 3] = torch.inf
    pool, average, largest = functional.max_pool2d, functional.adaptive_avg_pool2d, functional.adaptive_max_pool2d
    lowered = _lower(lambda v: (pool(v, 3, 2, 1, 2), pool(v, (3, 1), 1, (1, 0), (3, 1), True), largest(v, (4, 3))), x)
    testkit.compare(lowered)
    testkit.compare(_lower(lambda v: (average(v, (4, 3)), average(v, (2, 5))), x), tolerance=float32_tolerance(16))
    testkit.compare(_lower(lambda v: functional.adaptive_avg_pool1d(v[0], 3), x), tolerance=float32_tolerance(4))


def test_the_largest_are_found_without_their_places() -> None:
    x = torch.randn(1, 2, 9, 8)
    largest, partitioner = torch.ops.aten.max_pool2d_with_indices.default, VgfPartitioner(VgfOptions())
    testkit.compare(_lower(lambda v: (largest(v, [3, 3], [2, 2])[0], functional.adaptive_max_pool1d(v[0], 3)), x))
    call = call_of(lambda v: functional.adaptive_max_pool2d(v, (4, 3)), x)
    assert call.operator == "aten.adaptive_max_pool2d.default" and partitioner.check(call).supported
    (reason,) = testkit.refusals(partitioner, lambda v: largest(v, [3, 3], [2, 2])[1], x)
    assert reason.startswith("max_pool2d_with_indices")


def test_averages_of_halves_are_those_of_float32() -> None:
    x = torch.full((1, 1, 300, 300), 0.5).half()
    lowered = _lower(lambda v: functional.avg_pool2d(v, 300, divisor_override=1), x)
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=torch.finfo(torch.half).eps, atol=0)
    lowered = _lower(lambda v: functional.adaptive_avg_pool2d(v, (7, 5)), torch.rand(1, 2, 60, 46).half())
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=torch.finfo(torch.half).eps, atol=0)


def test_long_lists_of_tensors_are_joined_in_parts() -> None:
    parts = [torch.randn(1, 2) for _ in range(70)]
    lowered = _lower(lambda *given: torch.cat(given) * 2, *parts)
    testkit.compare(lowered)
    joins = [item for item in read_graph(unpack(lowered.delegate.blob)).operations if item.operator.name == "CONCAT"]
    assert len(joins) > 1 and max(len(item.inputs) for item in joins) <= 64


def test_products_that_count_nothing_are_not_computed() -> None:
    x, y = torch.randn(2, 2), torch.full((2, 2), torch.inf)
    testkit.compare(_lower(lambda a, b: torch.addmm(a, b, b, alpha=0), x, y))


def test_tensors_are_stacked() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    stack = torch.stack
    testkit.compare(_lower(lambda a, b: (stack([a, b.abs(), a]), stack([a, b], -1), stack([b], 1)), x, y))


def test_operators_that_only_integers_need_whole_do_not_stay_outside() -> None:
    """The table of quantized units keeps them: on numbers they are taken, or decomposed."""
    x = torch.rand(1, 2, 3, 4)
    models = (nn.CELU(), nn.Softshrink(), nn.LogSigmoid(), nn.Threshold(0.1, 2), nn.InstanceNorm2d(2), torch.square)
    for model in (*models, lambda v: v @ v.mT, lambda v: torch.stack([v, v + 1])):
        testkit.compare(_lower(model, x), tolerance=1e-5)


def test_elements_are_rolled() -> None:
    x = torch.randn(2, 3, 4)
    testkit.compare(_lower(lambda v: (v.roll(1), v.roll(-5, 1), v.roll((1, 3), (0, 2)), v.abs()), x))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("before", "after"), [((1, 6), (5, 1)), ((5, 1), (1, 7)), ((1, 1), (3, 1))])
def test_single_pixels_are_resized(before: tuple[int, int], after: tuple[int, int], align_corners: bool) -> None:
    x = torch.randn(1, 2, *before)
    lowered = _lower(
        lambda value: functional.interpolate(value, after, mode="bilinear", align_corners=align_corners), x
    )
    testkit.compare(lowered, tolerance=float32_tolerance(16))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(7, 9), (2, 3), (12, 4)])
def test_images_are_resized(size: tuple[int, int], align_corners: bool) -> None:
    x = torch.randn(1, 2, 5, 6)
    lowered = _lower(lambda value: functional.interpolate(value, size, mode="bilinear", align_corners=align_corners), x)
    testkit.compare(lowered, tolerance=float32_tolerance(16))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("known", [False, True])
def test_elements_are_gathered(axis: int, known: bool) -> None:
    """Along an axis, of a tensor that is larger than the index on the others."""
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5)
    index = torch.randint(0, 3, (2, 3, 4), dtype=torch.int32)
    if known:
        testkit.compare(_lower(lambda value: torch.gather(value.abs(), axis, index.long()), x))
    else:
        testkit.compare(_lower(lambda value, at: torch.gather(value.abs(), axis, at), x, index))
        testkit.compare(_lower(lambda value, at: torch.gather(value > 0, axis, at), x, index))


def test_what_the_hardware_lacks_is_refused_with_the_reason() -> None:
    partitioner = VgfPartitioner(VgfOptions())
    layer = nn.ConvTranspose2d(2, 2, 3, dilation=2)
    assert testkit.refusals(partitioner, layer, torch.ones(1, 2, 4, 4)) == [
        "dilation = [2, 2] of a transposed convolution"
    ]
    wide = torch.ones(1, 1, 9000)
    for function in (
        lambda x: functional.conv1d(x, wide),
        lambda x: functional.conv1d(x, wide[:, :, :2], dilation=8999),
        lambda x: functional.adaptive_avg_pool1d(x, 1),
        lambda x: functional.max_pool1d(x, 9000),
    ):
        (reason,) = testkit.refusals(partitioner, function, wide)
        assert reason.endswith("TOSA has 8192 at most")
    for before, after in ((8192, 16384), (16384, 8192)):
        image = torch.ones(1, 1, before, 1)
        (reason,) = testkit.refusals(partitioner, lambda x, rows=after: functional.interpolate(x, (rows, 1)), image)
        assert reason == f"from ({before}, 1) to ({after}, 1): TOSA resizes images of 16383 rows and columns at most"
    attention = functools.partial(functional.scaled_dot_product_attention, is_causal=True)
    assert testkit.refusals(partitioner, lambda x: attention(x, x, x), torch.ones(1, 2, 2)) == ["is_causal = True"]
    trunc = functools.partial(torch.div, other=-(2**31), rounding_mode="trunc")
    assert testkit.refusals(partitioner, trunc, torch.ones(2, dtype=torch.int32)) == ["other = -2147483648"]
    (reason,) = testkit.refusals(partitioner, lambda x: x.sum(), torch.ones(2, 4))
    assert "has no axes" in reason
    assert testkit.refusals(partitioner, lambda x: torch.any(x, dim=()), torch.ones(2, 4)) == ["dim is empty"]
    (reason,) = testkit.refusals(partitioner, lambda x: x & 0xFFFFFFFF, torch.ones(2, dtype=torch.int32))
    assert reason == "other = 4294967295: the device computes in 32 bits"


def test_numbers_that_halves_lack_are_refused() -> None:
    partitioner, x = VgfPartitioner(VgfOptions()), torch.ones(1, 2, 2).half()
    attention = functional.scaled_dot_product_attention
    for name, function in (
        ("alpha", lambda v: torch.addmm(v[0], v[0], v[0], alpha=1e5)),
        ("beta", lambda v: torch.baddbmm(v, v, v, beta=1e5)),
        ("scale", lambda v: attention(v, v, v, scale=1e5)),
        ("max_val", lambda v: functional.hardtanh(v, 0, 1e5)),
        ("lambd", lambda v: functional.hardshrink(v, 1e5)),
    ):
        assert any(reason.startswith(f"{name} = 100000") for reason in testkit.refusals(partitioner, function, x))


class _Module(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


@pytest.mark.parametrize("reach", [1.0, 60.0, 6e4])
@pytest.mark.parametrize("function", [torch.atan, functional.celu, lambda x: torch.ops.aten.elu(x, 2.0, 0.0, 2.0)])
def test_functions_of_int16_are_right_for_every_integer(
    function: Callable[[torch.Tensor], torch.Tensor], reach: float
) -> None:
    x = torch.cat([torch.linspace(-reach, reach, 999), torch.linspace(-1, 1, 301)])
    quantized = delegatekit.quantize(_Module(function).eval(), [(x,)], backend="vgf", scheme="int16", progress=False)
    step = next(node.args[1] for node in reversed(quantized.graph.nodes) if "dequantize_per_tensor" in str(node.target))
    (found,) = testkit.lower(quantized, x, backend="vgf").run()
    torch.testing.assert_close(found, quantized(x), rtol=0, atol=2.01 * step)


def test_booleans_beside_quantized_values_stay_numbers() -> None:
    x, truth = torch.randn(4, 2), torch.tensor([[True, False]] * 4)
    module = _Module(lambda value, mask: torch.cat([torch.relu(value), mask], 1))
    quantized = delegatekit.quantize(module.eval(), [(x, truth)], backend="vgf", progress=False)
    torch.testing.assert_close(
        testkit.lower(quantized, x, truth, backend="vgf", whole=False).run()[0], quantized(x, truth), rtol=0, atol=1e-6
    )
