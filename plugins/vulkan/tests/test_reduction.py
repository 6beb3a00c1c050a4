"""Reductions and softmax, compared with eager PyTorch in double precision, on a device."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_conformance.testkit import compare, lower, refusals
from delegatekit_toolkit.testing import assert_same_bits
from delegatekit_vulkan.options import VulkanOptions
from delegatekit_vulkan.support import VulkanPartitioner

pytestmark = pytest.mark.needs_device


def values(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


#: Sums are computed in float32, in parts; and values are rounded to float16 at each store.
TOLERANCE, HALF = 2e-6, 4e-3

AXES = [(0,), (1,), (3,), (0, 1), (2, 3), (1, 3), (0, 2), (1, 2, 3), (0, 1, 2, 3)]


def check(model, *inputs, tolerance=TOLERANCE, **settings):
    compare(lower(model, *inputs, backend="vulkan", **settings), tolerance=tolerance)


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_sums_means_and_extremes_agree_with_eager(axes):
    def reductions(x):
        kept = x.mean(axes, True), x.sum(axes, True), x.amax(axes, True), x.amin(axes, True)
        return (*kept, x.mean(axes), x.sum(axes), x.amax(axes), x.amin(axes))

    check(reductions, torch.rand(3, 5, 4, 7))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 1, 2, 3)], ids=str)
def test_reductions_of_other_ranks_agree_with_eager(shape):
    x = torch.rand(shape)
    check(lambda x: (2 * x.mean(0), x.sum(-1) - 1, 2 * x.sum(), x.amax() + 1), x)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_running_sums_of_whole_numbers_are_exact(size, axis):
    shape = [3, 2, 4]
    shape[axis] = size
    x = torch.randint(-1000, 1000, shape)
    model = lambda x: ((x + 1).cumsum(axis), (x > 0).cumsum(axis), (x * 0.5).cumsum(axis), x.int().cumsum(axis))  # noqa: E731
    compare(lower(model, x, backend="vulkan"))


def test_running_sums_keep_what_is_infinite_in_its_place():
    x = torch.tensor([1.0, math.inf, 2.0, -math.inf, 3.0])
    compare(lower(lambda x: (x * 2).cumsum(0), x, backend="vulkan"))


def test_reductions_in_float16_agree_with_eager():
    model = lambda x: (x.mean((1, 2)), x.sum(0), x.amax(-1), x.softmax(-1), x.log_softmax(1))  # noqa: E731
    check(model, torch.rand(3, 5, 8), tolerance=HALF, options={"fp16": True})


def test_long_rows_lose_nothing_to_rounding():
    check(lambda x: (x.sum(-1), x.mean(), x.var(-1)), torch.rand(2, 100_003))


def test_rows_longer_than_a_driver_loops_agree_with_eager():
    x = torch.randn(1, 70_001)
    check(lambda x: (x.softmax(-1), x.log_softmax(-1), x.argmax(-1), x.argmin()), x)


def test_variances_agree_with_eager_at_a_large_mean():
    # The numbers have seven digits, three of which the mean takes.
    model = lambda x: (x.var(-1), x.var((0, 2), correction=0, keepdim=True))  # noqa: E731
    check(model, 100 + torch.randn(4, 3, 50), tolerance=1e-5)


def test_positions_are_those_of_eager():
    def positions(x):
        return x.argmax(-1), x.argmin(0), x.argmax(1, keepdim=True), x.argmin(), x.argmax(2, True)

    x = torch.randint(0, 4, (6, 5, 9)).float()
    for found, wanted in zip(lower(positions, x, backend="vulkan").run(), positions(x), strict=True):
        assert_same_bits(found, wanted)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 12), (2, 3, 4, 5), (2, 3, 1, 2, 3), (7,)], ids=str)
def test_softmax_agrees_with_eager(shape, axis):
    if axis < len(shape):
        check(lambda x: (torch.softmax(x, axis), torch.log_softmax(x, axis)), 5 * torch.randn(shape))


def test_softmax_of_all_exponents_agrees_with_eager():
    check(lambda x: (x.softmax(-1), x.log_softmax(-1)), torch.linspace(-110, 110, 441)[None])


@pytest.mark.parametrize("columns", [5, 8])
def test_special_values_are_those_of_eager(columns):
    infinity, nan = math.inf, math.nan
    rows = [[1, 2, 3], [nan, 1, 2], [infinity, 1, 2], [-infinity, 1, 2], [infinity, -infinity, 1], [1, nan, infinity]]
    x = torch.nn.functional.pad(torch.tensor(rows), (0, columns - 3), value=-infinity)
    x[0] = -infinity

    def functions(x):
        reduced = x.sum(-1), x.mean(-1), x.amax(-1), x.amin(0), x.argmax(-1), x.argmin(-1)
        return (*reduced, x.softmax(-1), x.log_softmax(-1), x.softmax(0))

    for found, wanted in zip(lower(functions, x, backend="vulkan").run(), functions(x), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_reductions_of_sizes_that_change_agree_with_eager():
    rows, columns = torch.export.Dim("rows", max=20), torch.export.Dim("columns", max=30)
    model = lambda x: (x.mean(-1), x.sum(0, True), x.amax((0, 1)), x.softmax(1), x.argmax(-1))  # noqa: E731
    shapes = (({0: rows, 2: columns},),)
    lowered = lower(model, torch.randn(4, 3, 8), backend="vulkan", dynamic_shapes=shapes)
    compare(lowered, *[[torch.randn(a, 3, b)] for a, b in ((1, 2), (20, 30), (4, 8), (3, 5))], tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("function", "x", "reason"),
    [
        (lambda x: x.argmax(-1), torch.ones(2, 3, dtype=torch.int32), "int32: float32 or float16 are taken"),
        (lambda x: x.var(-1), torch.ones(2, 1), "correction 1 of 1 elements"),
    ],
)
def test_what_the_runtime_cannot_reduce_is_refused(function, x, reason):
    assert any(reason in item for item in refusals(VulkanPartitioner(VulkanOptions()), function, x))


def test_whether_any_or_all_hold_is_as_in_eager():
    x = torch.randint(0, 2, (3, 4, 5)).float()
    x[0], x[1], x[2, 0, 0] = 0, 1, math.nan

    def truths(x):
        y = x != 0
        return x.any(), y.any(-1), y.any(0, keepdim=True), x.all(), y.all(1), y.all(2, keepdim=True), y.any((0, 2))

    for found, wanted in zip(lower(truths, x, backend="vulkan").run(), truths(x), strict=True):
        assert_same_bits(found, wanted)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_distances_agree_with_eager(p):
    compare(
        lower(lambda x, y: torch.cdist(x, y, p), values(5, 7, 9), values(6, 4, 9), backend="vulkan"),
        tolerance=TOLERANCE,
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_records_and_products_up_to_each_element_agree_with_eager(axis):
    def function(x):
        return (*x.cummax(axis), *x.cummin(axis), x.div(3).cumprod(axis))

    x = values(7, 3, 4, 9)
    x[0, 1, 3], x[1, 2, 2] = math.nan, math.inf
    lowered = lower(function, x, backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want, rtol=TOLERANCE, atol=0, equal_nan=True)


def test_records_of_integers_and_booleans_are_those_of_eager():
    x = torch.tensor([[3, 5, 5, -2, 9, 9, 1], [0, 0, -1, 4, 2, 4, 4]])
    lowered = lower(lambda x: (*x.cummax(1), *(x > 2).cummin(1)), x, backend="vulkan")
    for got, want in zip(lowered.run(), lowered.eager(), strict=True):
        torch.testing.assert_close(got, want)
