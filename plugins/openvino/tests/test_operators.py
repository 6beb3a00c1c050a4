"""Operators where OpenVINO needs care: what is written otherwise, and what is refused."""

from __future__ import annotations

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


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    x = torch.randn(1000) * torch.logspace(-30, 30, 1000)
    testkit.compare(_lower(lambda value: value.to(torch.bfloat16) * 2, x))


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


def test_integers_are_divided_downwards() -> None:
    n = torch.arange(-9, 10, dtype=torch.int32)
    testkit.compare(_lower(lambda value: (value // 4, value % 4, torch.fmod(value, 4)), n))
