"""Convolution, pooling and resizing against eager PyTorch, through the stock runtime."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize(
    ("module", "node"),
    [
        (nn.Conv2d(6, 8, 3), "Conv2d"),
        (nn.Conv2d(6, 8, 3, padding=1, bias=False), "Conv2d"),
        (nn.Conv2d(6, 8, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2)), "Conv2d"),
        (nn.Conv2d(6, 8, 3, padding="same"), "Conv2d"),
        (nn.Conv2d(6, 8, 1, stride=2), "Conv2d"),
        (nn.Conv2d(6, 9, 3, groups=3), "Conv2d"),
        (nn.Conv2d(6, 8, 3, padding=5), "Conv2d"),
        (nn.Conv2d(6, 6, 3, padding=1, groups=6), "DepthwiseConv2d"),
        (nn.Conv2d(6, 18, 3, stride=2, groups=6, bias=False), "DepthwiseConv2d"),
        (nn.Conv2d(6, 6, (1, 5), padding=(0, 2), dilation=(1, 1), groups=6), "DepthwiseConv2d"),
        (nn.ConvTranspose2d(6, 8, 3), "ConvTranspose2d"),
        (nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1, bias=False), "ConvTranspose2d"),
        (nn.ConvTranspose2d(6, 8, 2, stride=3, output_padding=(2, 0)), "ConvTranspose2d"),
        (nn.ConvTranspose2d(6, 8, 3, stride=2, groups=2, dilation=2), "ConvTranspose2d"),
        (nn.ConvTranspose2d(6, 6, 3, stride=2, padding=1, groups=6), "ConvTranspose2d"),
    ],
    ids=str,
)
def test_two_dimensional_convolutions_agree_with_eager(module, node, matches_eager):
    lowered = matches_eager(module, torch.randn(2, 6, 8, 10), terms=54)
    assert lowered.nodes == {node: 1, "StaticTranspose": 2}


def test_a_convolution_of_one_channel_needs_no_transposed_input(matches_eager):
    lowered = matches_eager(nn.Conv2d(1, 4, 3), torch.randn(2, 1, 8, 8), terms=9)
    assert lowered.nodes == {"StaticReshape": 1, "Conv2d": 1, "StaticTranspose": 1}


def test_a_convolution_without_batch_axis_agrees_with_eager(matches_eager):
    matches_eager(nn.Conv2d(6, 8, 3), torch.randn(6, 8, 10), terms=54)


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv1d(5, 7, 3, padding=1),
        nn.Conv1d(5, 10, 3, stride=2, groups=5),
        nn.Conv1d(5, 7, 3, dilation=3),
        nn.ConvTranspose1d(5, 7, 3, stride=2, output_padding=1),
    ],
    ids=str,
)
def test_one_dimensional_convolutions_agree_with_eager(module, matches_eager):
    matches_eager(module, torch.randn(2, 5, 12), terms=15)


def test_a_chain_of_one_dimensional_convolutions_stays_channels_last(matches_eager):
    module = nn.Sequential(nn.Conv1d(5, 7, 3, padding=1), nn.ReLU(), nn.Conv1d(7, 4, 3), nn.Tanh(), nn.Conv1d(4, 3, 1))
    lowered = matches_eager(module, torch.randn(2, 5, 12), terms=40)
    assert lowered.nodes == {"StaticReshape": 2, "StaticTranspose": 2, "Conv2d": 3, "Tanh": 1}


@pytest.mark.parametrize(
    "module",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d((1, 3), (2, 1), (0, 1)),
        nn.MaxPool2d(2, 1, dilation=2),
        nn.MaxPool2d(2, 3),
        nn.MaxPool2d(1, 3),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.MaxPool2d(2, 2, ceil_mode=True),
        nn.MaxPool2d(3, 2, 1, dilation=2, ceil_mode=True),
    ],
    ids=str,
)
def test_maximum_pooling_is_equal_to_eager(module, lower_whole):
    x = torch.randn(2, 3, 9, 11) - 5.0  # all below 0: padding with zeros would be visible
    lowered = lower_whole(module, x)
    assert torch.equal(lowered.run()[0], module(x))
    assert lowered.nodes == {"MaxPooling2d": 1, "StaticTranspose": 2}


@pytest.mark.parametrize(
    "module",
    [
        nn.AvgPool2d(2),
        nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d(2, 3),
        nn.AvgPool2d((1, 3), (2, 1), (0, 1)),
        nn.AvgPool2d(2, 2, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(2, divisor_override=4),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d((3, 1)),
        nn.AdaptiveAvgPool2d((9, 11)),
    ],
    ids=str,
)
def test_average_pooling_agrees_with_eager(module, matches_eager):
    matches_eager(lambda x: module(x).neg(), torch.randn(2, 3, 9, 11) + 5.0, terms=99)


@pytest.mark.parametrize("module", [nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1)], ids=str)
def test_pooling_without_batch_axis_agrees_with_eager(module, matches_eager):
    matches_eager(module, torch.randn(3, 8, 8), terms=9)


@pytest.mark.parametrize(
    "module",
    [
        nn.MaxPool1d(2),
        nn.MaxPool1d(3, 2, 1, ceil_mode=True),
        nn.AvgPool1d(3, 2, 1),
        nn.AvgPool1d(3, 2, 1, count_include_pad=False),
        nn.AvgPool1d(4, ceil_mode=True),
        nn.AdaptiveAvgPool1d(1),
        nn.AdaptiveAvgPool1d(4),
    ],
    ids=str,
)
def test_one_dimensional_pooling_agrees_with_eager(module, matches_eager):
    matches_eager(module, torch.randn(2, 5, 12), terms=12)


@pytest.mark.parametrize(
    "settings",
    [
        {"size": (16, 18)},
        {"size": (5, 4)},
        {"size": (1, 1)},
        {"size": (13, 17), "align_corners": True},
        {"size": (1, 7), "align_corners": True},
        {"scale_factor": 2},
        {"scale_factor": (0.5, 3.0)},
        {"scale_factor": 1.5, "align_corners": True},
    ],
)
def test_bilinear_resizing_agrees_with_eager(settings, matches_eager):
    # Source positions are float32 numbers up to the input's size: their rounding counts like a sum of that length.
    lowered = matches_eager(lambda x: F.interpolate(x, mode="bilinear", **settings), torch.randn(2, 3, 8, 6), terms=64)
    assert lowered.nodes["StaticResizeBilinear2D"] == 1


@pytest.mark.parametrize("settings", [{"scale_factor": 2}, {"scale_factor": (3, 1)}, {"size": (20, 12)}])
def test_nearest_resizing_is_equal_to_eager(settings, lower_whole):
    x = torch.randn(2, 3, 5, 6)
    lowered = lower_whole(lambda x: F.interpolate(x, **settings).neg(), x)
    assert torch.equal(lowered.run()[0], F.interpolate(x, **settings).neg())


# -- layouts ---------------------------------------------------------------------------------------------------------


class _Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        y = self.first(x)
        return torch.sigmoid(self.second(y) + y)


class _Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 3, padding=1)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x):
        y = self.stem(x)
        joined = torch.cat([self.left(y), self.right(y)], dim=1)
        return self.head(F.pad(joined, (0, 1, 1, 0), value=2.0)[:, :, 1:].softmax(dim=1))


class _SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.down, self.up = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.bias = nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x):
        y = self.stem(x)
        scale = self.up(self.down(y.mean((2, 3), keepdim=True)).relu()).sigmoid()
        return y * scale + self.bias


@pytest.mark.parametrize(
    "module", [_Residual(), _Branches(), _SqueezeExcite()], ids=lambda module: type(module).__name__
)
def test_a_convolutional_network_transposes_only_its_input_and_output(module, matches_eager):
    channels = next(module.parameters()).shape[1] if not isinstance(module, _SqueezeExcite) else 3
    lowered = matches_eager(module, torch.randn(1, channels, 7, 6), terms=60)
    assert lowered.nodes["StaticTranspose"] == 2
    assert lowered.nodes["StaticReshape"] == 0


def test_a_classifier_head_needs_no_transpose(matches_eager):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    lowered = matches_eager(module, torch.randn(2, 3, 7, 6), terms=40)
    assert lowered.nodes["StaticTranspose"] == 1


def test_a_patch_embedding_flattens_without_a_transpose(matches_eager):
    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.projection = nn.Conv2d(3, 16, 4, stride=4)

        def forward(self, x):
            return self.projection(x).flatten(2).transpose(1, 2) * 2.0

    lowered = matches_eager(Embedding(), torch.randn(2, 3, 12, 16), terms=48)
    assert lowered.nodes == {"StaticTranspose": 1, "Conv2d": 1, "StaticReshape": 1, "Multiply": 1}


@pytest.mark.parametrize("size", [(4, 3), (5, 8), (1, 7), (12, 2)], ids=str)
@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d])
def test_adaptive_windows_of_any_size_agree_with_eager(pool, size, matches_eager):
    matches_eager(nn.Sequential(nn.Conv2d(3, 4, 1), pool(size)), torch.randn(2, 3, 9, 8), terms=8)


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv3d(3, 4, 3, padding=1),
        nn.Conv3d(4, 4, 3, stride=2, padding=1, groups=4),
        nn.ConvTranspose3d(3, 4, 3, stride=2, padding=1, output_padding=1),
        nn.Sequential(nn.Conv3d(3, 6, 3), nn.BatchNorm3d(6), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(6, 4, (1, 3, 2))),
        nn.Sequential(nn.AvgPool3d(3, 2, 1, count_include_pad=False), nn.AdaptiveAvgPool3d((2, 3, 2))),
    ],
)
def test_volumes_agree_with_eager(module, matches_eager):
    channels = next((layer.in_channels for layer in module.modules() if hasattr(layer, "in_channels")), 3)
    matches_eager(module, torch.randn(2, channels, 6, 8, 7), terms=256)
