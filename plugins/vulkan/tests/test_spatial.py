"""Convolutions, poolings, resizing and padding: lowered, run on the device, and compared with eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit_conformance import testkit
from delegatekit_vulkan.options import VulkanOptions
from delegatekit_vulkan.support import VulkanPartitioner

from .blobs import operators

#: Sums of at most some hundred products.
FLOAT32 = 1e-5
#: float16 has 11 bits: each operator rounds its operands, its constants and its result.
FLOAT16 = 4e-3


def check(model: Any, *inputs: torch.Tensor, tolerance: float | None = FLOAT32, **options: Any) -> testkit.Lowered:
    """One delegate, equal to eager mode."""
    lowered = testkit.lower(model, *inputs, backend="vulkan", options=options)
    testkit.compare(lowered, tolerance=tolerance)
    return lowered


def reasons(model: Any, *inputs: torch.Tensor, **settings: Any) -> list[str]:
    return testkit.refusals(VulkanPartitioner(VulkanOptions()), model, *inputs, **settings)


CONVOLUTIONS = [
    nn.Conv2d(6, 8, 3),
    nn.Conv2d(6, 17, 1, bias=False),
    nn.Conv2d(6, 8, 1, stride=2),
    nn.Conv2d(6, 8, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2)),
    nn.Conv2d(6, 8, 3, padding=5),
    nn.Conv2d(6, 9, 3, groups=3),
    nn.Conv2d(6, 6, 3, padding=1, groups=6),
    nn.Conv2d(6, 6, 5, padding=2, stride=2, groups=6, bias=False),
    nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6),
    nn.Conv2d(6, 6, 7, padding=3, groups=6),
    nn.Conv2d(6, 6, (1, 9), padding=(0, 4), groups=6),
    nn.Conv2d(6, 18, 3, stride=2, padding=1, groups=6),
    nn.ConvTranspose2d(6, 8, 3),
    nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1, bias=False),
    nn.ConvTranspose2d(6, 8, 2, stride=(3, 1), output_padding=(2, 0)),
    nn.ConvTranspose2d(6, 8, 3, stride=2, groups=2),
]


@pytest.mark.needs_device
@pytest.mark.parametrize("module", CONVOLUTIONS, ids=str)
def test_convolutions_over_two_axes(module: nn.Module) -> None:
    check(module, torch.randn(1, 6, 9, 10))


@pytest.mark.needs_device
@pytest.mark.parametrize(
    "module",
    [
        nn.Conv1d(6, 7, 3, padding=1),
        nn.Conv1d(6, 12, 3, stride=2, groups=3),
        nn.Conv1d(6, 7, 3, dilation=3, bias=False),
        nn.Conv1d(6, 6, 5, groups=6),
        nn.ConvTranspose1d(6, 7, 3, stride=2, output_padding=1),
    ],
    ids=str,
)
def test_convolutions_over_one_axis(module: nn.Module) -> None:
    check(module, torch.randn(2, 6, 13))


@pytest.mark.needs_device
@pytest.mark.parametrize(
    "module", [nn.Conv2d(6, 8, 3, 2, 1), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 9, 1)], ids=str
)
def test_several_images_are_convolutions_of_one_each(module: nn.Module) -> None:
    lowered = check(module, torch.randn(3, 6, 8, 8))
    assert operators(lowered).count("aten.convolution.default") == 3


_FAR = 1 << 24


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(1, 1, 1, stride=_FAR),
        nn.Conv2d(1, 1, 1, stride=_FAR - 1, padding=_FAR),
        nn.Conv1d(1, 1, 1, dilation=_FAR),
        nn.MaxPool2d(1, stride=_FAR),
        nn.MaxPool2d(1, dilation=_FAR, return_indices=True),
        nn.AvgPool2d(1, stride=_FAR),
    ],
    ids=str,
)
def test_windows_that_reach_too_far_are_refused(module: nn.Module) -> None:
    size = (1, 2) if isinstance(module, nn.Conv1d) else (1, 2, 2)
    (reason,) = reasons(module, torch.randn(1, *size))
    assert "positions are computed in 32 bits" in reason


@pytest.mark.needs_device
@pytest.mark.parametrize(
    "module", [nn.Conv2d(1, 1, 2, stride=_FAR - 1), nn.MaxPool2d(2, _FAR - 1), nn.AvgPool2d(2, _FAR - 1)], ids=str
)
def test_a_step_far_beyond_the_image(module: nn.Module) -> None:
    check(module, torch.randn(1, 1, 3, 3))


@pytest.mark.needs_device
@pytest.mark.parametrize("size", [1, 3, 5, 17])
@pytest.mark.parametrize("channels", [1, 3, 8, 9])
def test_convolutions_of_odd_sizes(size: int, channels: int) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.Conv2d(channels, channels, 3, 1, 1, groups=channels),
        nn.Conv2d(channels, 5, 1),
    )
    check(model, torch.randn(1, 3, size, size + 1))


@pytest.mark.needs_device
@pytest.mark.parametrize("module", [*CONVOLUTIONS[:1], CONVOLUTIONS[6], CONVOLUTIONS[12], nn.Conv2d(6, 17, 1)], ids=str)
def test_convolutions_in_half_precision(module: nn.Module) -> None:
    check(module, torch.randn(1, 6, 8, 8), tolerance=FLOAT16, fp16=True)


@pytest.mark.needs_device
def test_convolutions_of_images_whose_size_changes() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 4, 1), nn.ConvTranspose2d(4, 4, 2, 2)
    )
    height, width = torch.export.Dim("height", min=4, max=40), torch.export.Dim("width", min=4, max=40)
    shapes = ({2: height, 3: width},)
    lowered = testkit.lower(model, torch.randn(1, 3, 16, 16), backend="vulkan", dynamic_shapes=shapes)
    calls = [(torch.randn(1, 3, *size),) for size in ((16, 16), (5, 40), (40, 7), (4, 4))]
    testkit.compare(lowered, *calls, tolerance=FLOAT32)


@pytest.mark.needs_device
def test_not_a_number_and_infinity_stay_where_they_belong() -> None:
    x = torch.randn(1, 4, 9, 9)
    x[0, 1, 0, 0], x[0, 2, 8, 8], x[0, 3, 4, 4] = float("nan"), float("inf"), float("-inf")
    for module in (nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 3, 3, padding=1), nn.MaxPool2d(3, 2, 1)):
        lowered = testkit.lower(module, x, backend="vulkan")
        (got,), want = lowered.run(x), module(x)
        torch.testing.assert_close(got, want, rtol=FLOAT32, atol=FLOAT32, equal_nan=True)


POOLINGS = [
    nn.MaxPool2d(2),
    nn.MaxPool2d((3, 2), (2, 1), (1, 0)),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    nn.MaxPool2d(3, 2, 1, dilation=2, ceil_mode=True),
    nn.AvgPool2d(2),
    nn.AvgPool2d(3, 2, 1),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    nn.AvgPool2d((1, 3), 1, (0, 1), divisor_override=5),
    nn.AdaptiveAvgPool2d((3, 11)),
]


@pytest.mark.needs_device
@pytest.mark.parametrize("module", POOLINGS, ids=str)
def test_poolings(module: nn.Module) -> None:
    check(module, torch.randn(2, 3, 9, 11) - 5)
    check(module, torch.randn(3, 9, 11) - 5, tolerance=FLOAT16, fp16=True)


@pytest.mark.needs_device
def test_a_divisor_may_be_large_and_negative() -> None:
    check(nn.AvgPool2d(2, divisor_override=-(2**30)), (torch.randn(2, 3, 9, 11) - 5) * 2.0**30)


@pytest.mark.needs_device
def test_positions_of_maxima_are_integers() -> None:
    check(nn.MaxPool2d(3, 2, 1, return_indices=True), torch.randn(2, 3, 9, 11), tolerance=None)


@pytest.mark.needs_device
@pytest.mark.parametrize(
    "settings", [{"scale_factor": 2}, {"size": (7, 5)}, {"size": (16, 18)}, {"size": (3, 17)}], ids=str
)
def test_resizing(settings: dict[str, Any]) -> None:
    x = torch.randn(2, 3, 8, 6)
    check(lambda x: F.interpolate(x, **settings), x, tolerance=None)
    for corners in (False, True):
        check(lambda x, corners=corners: F.interpolate(x, mode="bilinear", align_corners=corners, **settings), x)


@pytest.mark.needs_device
def test_sampling_at_a_grid() -> None:
    def sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, padding_mode="border", align_corners=True)

    check(sample, torch.randn(2, 3, 5, 7), torch.rand(2, 4, 3, 2) * 3 - 1.5)


@pytest.mark.needs_device
@pytest.mark.parametrize(
    "model",
    [
        nn.PixelShuffle(3),
        lambda x: F.pad(x, (1, 2, 0, 3), value=-1.5),
        lambda x: F.pad(x, (0, 0, 0, 0, 2, 1)),
    ],
)
def test_moving_pixels(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(model, torch.randn(1, 18, 3, 5), tolerance=None)


@pytest.mark.needs_device
def test_padding_of_integers() -> None:
    check(lambda x: F.pad(x, (1, 2), value=7), torch.randint(-9, 9, (2, 3)), tolerance=None)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (nn.Conv3d(3, 4, 2), (1, 3, 4, 4, 4), "5 axes"),
        (nn.Conv2d(3, 4, 2), (33, 3, 4, 4), "33 images"),
        (nn.Conv2d(66, 66, 1, groups=33), (1, 66, 4, 4), "33 convolutions"),
        (nn.ConvTranspose2d(3, 4, 2, dilation=2), (1, 3, 4, 4), "no gaps"),
        (nn.AdaptiveAvgPool2d((3, 3)), (1, 3, 8, 8), "windows of different sizes"),
        (nn.AvgPool2d(2, divisor_override=2**31), (1, 3, 4, 4), "32 bits"),
        (nn.Upsample(scale_factor=1.7), (1, 3, 5, 5), "not the ratio"),
        (nn.UpsamplingBilinear2d((1, 4)), (1, 3, 5, 5), "align_corners"),
    ],
    ids=str,
)
def test_what_a_phone_cannot_do_is_refused(module: nn.Module, shape: tuple[int, ...], words: str) -> None:
    assert any(words in reason for reason in reasons(module, torch.randn(shape)))


def test_a_weight_that_is_computed_is_refused() -> None:
    (reason,) = reasons(F.conv2d, torch.randn(1, 3, 4, 4), torch.randn(2, 3, 1, 1))
    assert "weight is computed" in reason


def test_a_number_of_images_that_changes_is_refused() -> None:
    shapes = ({0: torch.export.Dim("images", min=2, max=8)},)
    (reason,) = reasons(nn.Conv2d(3, 4, 1), torch.randn(4, 3, 4, 4), dynamic_shapes=shapes)
    assert "changes from call to call" in reason


def test_resizing_of_sizes_that_change_is_refused() -> None:
    shapes = ({2: torch.export.Dim("height", min=2, max=20)},)
    (reason,) = reasons(nn.Upsample(scale_factor=2), torch.randn(1, 2, 8, 6), dynamic_shapes=shapes)
    assert "same sizes in every call" in reason
