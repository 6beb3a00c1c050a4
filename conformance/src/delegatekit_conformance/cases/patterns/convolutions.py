"""Convolutions and their neighbors: norms, activations, pools, padding, resizing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..subjects import Built
from .register import pattern


@pattern("conv-bn-relu")
def conv_bn_relu() -> Built:
    """A convolution with a batch norm whose statistics are not trivial, and a relu."""
    norm = nn.BatchNorm2d(8)
    norm.running_mean = torch.randn(norm.num_features)
    norm.running_var = torch.rand(norm.num_features) + 0.5
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm, nn.ReLU()), [(torch.randn(2, 3, 9, 9),)]


@pattern("conv-without-bias-bn")
def conv_without_bias_bn() -> Built:
    """The batch norm brings the bias; no activation."""
    norm = nn.BatchNorm2d(8, affine=False)
    norm.running_mean = torch.randn(norm.num_features)
    norm.running_var = torch.rand(norm.num_features) + 0.5
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm), [(torch.randn(1, 3, 9, 9),)]


@pattern("conv-relu6")
def conv_relu6() -> Built:
    """Both ends of a fused clamp."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU6()), [(6 * torch.randn(1, 3, 9, 9),)]


@pattern("conv-clamped-twice")
def conv_clamped_twice() -> Built:
    """Consecutive clamps after a convolution, the second wider at one end and narrower at the other."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Hardtanh(-1.0, 0.5)), [(torch.randn(1, 3, 6, 6),)]


@pattern("conv-hardswish")
def conv_hardswish() -> Built:
    """An activation that few kernels fuse."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish()), [(3 * torch.randn(1, 3, 8, 8),)]


@pattern("conv-silu")
def conv_silu() -> Built:
    """SiLU after a convolution, as in detectors."""
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.SiLU()), [(torch.randn(1, 3, 8, 8),)]


@pattern("bn-conv")
def bn_conv() -> Built:
    """A batch norm before a padded convolution: folding it forward would be wrong at the border."""
    norm = nn.BatchNorm2d(4)
    norm.running_mean = torch.randn(norm.num_features)
    norm.running_var = torch.rand(norm.num_features) + 0.5
    return nn.Sequential(norm, nn.Conv2d(4, 6, 3, padding=1)), [(torch.randn(1, 4, 7, 7),)]


@pattern("conv-used-twice")
def conv_used_twice() -> Built:
    """The convolution's result is used before and after the relu: the relu must not be fused away."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            return y, nn.functional.relu(y), nn.functional.relu(y) + y

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("convolution-kinds")
def convolution_kinds() -> Built:
    """A value that is read by windows, through groups and pixel by pixel; samples of very different size."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, (3, 5), stride=(1, 2), padding=(1, 0))
            self.wide, self.groups = nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.Conv2d(8, 8, 3, padding=1, groups=2)
            self.point = nn.Conv2d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.relu(self.stem(x))
            return nn.functional.relu(self.wide(y) + self.groups(y)) + self.point(y)

    return Model(), [(torch.randn(3, 3, 9, 12) * torch.tensor([1.0, 10.0, 0.1]).view(3, 1, 1, 1),)]


@pattern("strides-and-borders")
def strides_and_borders() -> Built:
    """Windows that leave pixels out, or begin beside the image: of many sizes of strides devices have a few."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups = nn.Conv2d(2, 4, 2, stride=(4, 5), groups=2)
            self.point = nn.Conv2d(2, 3, 1, stride=2, padding=1)
            self.corner = nn.Conv2d(2, 2, 2, stride=2, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            return self.groups(x), self.point(x), self.corner(x[:, :, :1, :1])

    return Model(), [(torch.randn(1, 2, 10, 12),)]


@pattern("patches-and-class-token")
def patches_and_class_token() -> Built:
    """Patches of an image as tokens after a learned one, with learned positions, as vision transformers begin."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.layer = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 8)
            self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))

        def forward(self, x: torch.Tensor) -> Any:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            return self.layer(torch.cat([self.token, tokens], 1) + self.positions)

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("linear-over-columns")
def linear_over_columns() -> Built:
    """Feature maps whose columns a linear layer mixes: a tensor stored with channels last has columns last, too."""
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Linear(6, 6), nn.Conv2d(6, 4, 1))
    return model, [(torch.randn(2, 3, 7, 8),)]


@pattern("convolutions-over-time")
def convolutions_over_time() -> Built:
    """One-dimensional convolutions, one of which halves the rate, as at the input of speech recognizers."""
    model = nn.Sequential(
        nn.Conv1d(4, 8, 3, padding=1), nn.GELU(), nn.Conv1d(8, 8, 3, 2, 1), nn.GELU(), nn.Conv1d(8, 6, 1)
    )
    return model, [(torch.randn(2, 4, 11),)]


@pattern("depthwise-separable")
def depthwise_separable() -> Built:
    """Depthwise and pointwise convolutions with batch norm and relu6, as in MobileNet."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
            self.first = nn.BatchNorm2d(8)
            self.pointwise = nn.Conv2d(8, 12, 1, bias=False)
            self.second = nn.BatchNorm2d(12)

        def forward(self, x: torch.Tensor) -> Any:
            x = nn.functional.relu6(self.first(self.depthwise(x)))
            return nn.functional.relu6(self.second(self.pointwise(x)))

    return Model(), [(torch.randn(1, 8, 10, 10),)]


@pattern("inverted-residual")
def inverted_residual() -> Built:
    """Expand, depthwise, project, and the input added again."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand = nn.Conv2d(4, 16, 1)
            self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.project = nn.Conv2d(16, 4, 1)

        def forward(self, x: torch.Tensor) -> Any:
            return x + self.project(nn.functional.relu6(self.depthwise(nn.functional.relu6(self.expand(x)))))

    return Model(), [(torch.randn(1, 4, 8, 8),)]


@pattern("residual-relu")
def residual_relu() -> Built:
    """Two convolutions, a shortcut with a convolution of its own, a sum and a relu."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(4, 8, 3, stride=2, padding=1)
            self.second = nn.Conv2d(8, 8, 3, padding=1)
            self.shortcut = nn.Conv2d(4, 8, 1, stride=2)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.second(nn.functional.relu(self.first(x))) + self.shortcut(x))

    return Model(), [(torch.randn(2, 4, 9, 9),)]


@pattern("squeeze-excite")
def squeeze_excite() -> Built:
    """Channels weighted by a gate that is computed from their means."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(8, 2, 1)
            self.excite = nn.Conv2d(2, 8, 1)

        def forward(self, x: torch.Tensor) -> Any:
            gate = nn.functional.adaptive_avg_pool2d(x, 1)
            return x * torch.sigmoid(self.excite(nn.functional.silu(self.squeeze(gate))))

    return Model(), [(torch.randn(1, 8, 7, 7),)]


@pattern("pooling-head")
def pooling_head() -> Built:
    """Global average pooling, flatten, dropout, linear."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 5))
    return model, [(torch.randn(2, 6, 5, 5),)]


@pattern("many-windows")
def many_windows() -> Built:
    """Averages of many windows: all of one size, and of two sizes."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            pool = nn.functional.adaptive_avg_pool1d
            return pool(x, 26), pool(y, 28)

    return Model(), [(torch.randn(1, 2, 52), torch.randn(1, 2, 60))]


@pattern("mean-head")
def mean_head() -> Built:
    """The same, written as a mean over height and width."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(x.mean((2, 3))).log_softmax(-1)

    return Model(), [(torch.randn(2, 6, 5, 5),)]


@pattern("pad-conv")
def pad_conv() -> Built:
    """Padding on two sides only, as TensorFlow's "same" is exported."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, stride=2)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.conv(nn.functional.pad(x, (0, 1, 0, 1))))

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("pads-beside-zeros")
def pads_beside_zeros() -> Built:
    """Pads that no convolution can do by itself: with another number, of channels, and wider than the windows."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.deeper = nn.Conv2d(2, 3, 3), nn.Conv2d(4, 3, 2)
            self.apart = nn.Conv2d(2, 2, 2, stride=3)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.relu(x)
            ones = nn.functional.pad(y, (1, 1, 1, 1), value=1.0)
            return (
                self.conv(ones),
                self.deeper(nn.functional.pad(y, (0, 0, 0, 0, 1, 1))),
                self.apart(nn.functional.pad(y[:, :, :1], (0, 0, 2, 0))),
            )

    return Model(), [(torch.randn(1, 2, 4, 5),)]


@pattern("windows-of-all-there-is")
def windows_of_all_there_is() -> Built:
    """Windows as large as the image, with a border along one axis, along both and along none."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 4, (4, 5), padding=(1, 0))

        def forward(self, x: torch.Tensor) -> Any:
            average, largest = nn.functional.avg_pool2d, nn.functional.max_pool2d
            borders = (1, 0), (0, 2), (2, 1), 0
            averages = [average(x, (4, 5), 3, border, counted) for border in borders for counted in (True, False)]
            return *averages, *(largest(x, (4, 5), 2, border) for border in borders), self.layer(x)

    return Model(), [(torch.randn(2, 3, 4, 5) + 1,)]


@pattern("averages-at-borders")
def averages_at_borders() -> Built:
    """Averages of a convolution's result: windows beyond the border, which count elements inside, and strides."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.relu(self.conv(x))
            inside = nn.functional.avg_pool2d(y, (3, 2), stride=(2, 1), padding=1, count_include_pad=False)
            all_of_it = nn.functional.avg_pool2d(y, (3, 2), stride=(2, 3), padding=1)
            over = nn.functional.avg_pool2d(y, 2, stride=(4, 5), ceil_mode=True)
            both = nn.functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False)
            # Divided by as many numbers as there are in a window, also where fewer of them are inside.
            all_alike = nn.functional.avg_pool2d(y, (2, 3), 1, (1, 0), count_include_pad=False, divisor_override=6)
            return inside, all_of_it, over, both, all_alike

    return Model(), [(torch.randn(1, 2, 9, 10),)]


@pattern("pads-of-four-widths")
def pads_of_four_widths() -> Built:
    """Padding whose four sides differ, before a convolution and a pool that pad by themselves, and twice in a row."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.depthwise = nn.Conv2d(3, 4, 5, padding=(1, 2)), nn.Conv2d(4, 4, 3, groups=4)
            self.pool = nn.MaxPool2d(5, stride=2, padding=(1, 2))

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(nn.functional.pad(x, (0, 1, 2, 3)))
            z = self.pool(nn.functional.pad(x, (1, 0, 2, 1), value=-torch.inf))
            twice = nn.functional.pad(nn.functional.pad(y, (3, 1, 0, 2)), (0, 2, 1, 0))
            return y, z, self.depthwise(twice), nn.functional.pad(x, (-1, 2, 3, -2)), nn.functional.avg_pool2d(twice, 3)

    return Model(), [(torch.randn(1, 3, 8, 9),)]


@pattern("windows-of-padding-alone")
def windows_of_padding_alone() -> Built:
    """Padding wider than one side of a window: the largest number of some windows is that of the padding."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            wide = nn.functional.pad(x, (3, 3, 1, 1), value=-torch.inf)
            return [nn.functional.max_pool2d(wide, window) for window in ((5, 2), (2, 5))]

    return Model(), [(torch.randn(1, 3, 8, 9),)]


@pattern("windows-of-every-kind")
def windows_of_every_kind() -> Built:
    """Pools whose windows have every size, stride and border of a few, along rows beside others along columns."""
    kinds = torch.cartesian_prod(torch.arange(1, 4), torch.arange(1, 4), torch.arange(2)).tolist()
    kinds = [kind for kind in kinds if 2 * kind[2] <= kind[0]]
    pairs: list[Any] = [
        list(zip(kind, kinds[(7 * place + 1) % len(kinds)], strict=True)) for place, kind in enumerate(kinds)
    ]

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            average, largest = nn.functional.avg_pool2d, nn.functional.max_pool2d
            return [pool(x, *windows) for windows in pairs for pool in (average, largest)]

    return Model(), [(torch.randn(1, 2, 7, 6) - 1,)]


@pattern("kernels-of-every-kind")
def kernels_of_every_kind() -> Built:
    """Convolutions with every size, stride, border and dilation of a few, in groups, for each channel, transposed."""
    kinds = torch.cartesian_prod(torch.arange(1, 4), torch.arange(1, 3), torch.arange(2), torch.arange(1, 3)).tolist()
    kinds += [(2, 3, 1, 1), (3, 3, 0, 1)]
    pairs: list[Any] = [
        list(zip(kind, kinds[(7 * place + 1) % len(kinds)], strict=True)) for place, kind in enumerate(kinds)
    ]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, groups = nn.ModuleList(), (1, 2, 4)
            for place, windows in enumerate(pairs):
                size, stride, padding, dilation = windows
                common: dict[str, Any] = {"padding": padding, "dilation": dilation, "groups": groups[place % 3]}
                self.layers.append(nn.Conv2d(4, 4, size, stride, **common))
                if place % 2:
                    self.layers.append(nn.ConvTranspose2d(4, 4, size, stride, **common))

        def forward(self, x: torch.Tensor) -> Any:
            return [layer(x) for layer in self.layers]

    return Model(), [(torch.randn(1, 4, 7, 6),)]


@pattern("pads-of-what-a-function-cannot-give")
def pads_of_what_a_function_cannot_give() -> Built:
    """Padding of a function's results with numbers outside of its range must not pass through the function."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            pad = nn.functional.pad
            return (
                pad(torch.exp(x), (0, 2), value=-1.5),
                pad(x.clamp(0.5, 3.0), (0, 1, 2, 0)),
                pad(nn.functional.relu6(y), (0, 3, 1, 0), value=7.0),
                pad(nn.functional.hardswish(y), (2, 0, 0, 1), value=-2.0),
                pad(torch.relu(x + 1.0), (0, 0, 0, 0, 0, 1), value=-1.0),
            )

    return Model(), [(torch.randn(4, 4, 4), torch.randn(1, 3, 4, 5))]


@pattern("pad-with-a-number-conv")
def pad_with_a_number_conv() -> Built:
    """Padding with 0.5 must not become the convolution's own padding."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.conv(nn.functional.pad(x, (1, 1, 1, 1), value=0.5))

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("upsample-skip")
def upsample_skip() -> Built:
    """Nearest neighbors twice as large, joined with a skip connection."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(6, 4, 3, padding=1)

        def forward(self, x: torch.Tensor, skip: torch.Tensor) -> Any:
            return nn.functional.relu(self.conv(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skip], 1)))

    return Model(), [(torch.randn(1, 4, 4, 4), torch.randn(1, 2, 8, 8))]


@pattern("resize-bilinear")
def resize_bilinear() -> Built:
    """Bilinear resizing between convolutions, to twice the size and to a given one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.interpolate(self.first(x), scale_factor=2.0, mode="bilinear")
            return nn.functional.interpolate(self.second(y), size=(9, 7), mode="bilinear", align_corners=True)

    return Model(), [(torch.randn(1, 3, 4, 5),)]


@pattern("transposed-conv-groups")
def transposed_conv_groups() -> Built:
    """A transposed convolution with groups and one pixel of output padding, whose scales are far apart."""
    layer = nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2)
    layer.weight.data[:, 0] *= 20
    return nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.ReLU()), [(torch.randn(2, 3, 6, 5),)]


@pattern("one-image")
def one_image() -> Built:
    """Convolutions of one image in groups of odd numbers of channels, one for each channel, and one transposed."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups, self.each = nn.Conv2d(6, 6, 3, groups=3), nn.Conv2d(6, 6, 3, padding=1, groups=6)
            self.larger = nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, groups=2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.larger(nn.functional.relu(self.each(nn.functional.relu(self.groups(x)))))

    return Model(), [(torch.randn(1, 6, 7, 6),)]


@pattern("transposed-conv-beyond-windows")
def transposed_conv_beyond_windows() -> Built:
    """Transposed convolutions over two and three axes whose last rows no window reaches, and of uneven padding."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.ConvTranspose2d(2, 3, 2, 2, output_padding=1)
            self.deep, self.uneven = nn.ConvTranspose3d(2, 3, 2, 2, 0, 1), nn.ConvTranspose3d(2, 3, 2, 1, (0, 1, 0))

        def forward(self, x: torch.Tensor) -> Any:
            return self.flat(x[:, :, 0]), self.deep(x), self.uneven(x)

    return Model(), [(torch.randn(1, 2, 2, 3, 3),)]


@pattern("transposed-conv-relu")
def transposed_conv_relu() -> Built:
    """A transposed convolution that doubles the size."""
    return nn.Sequential(nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.ReLU()), [(torch.randn(1, 4, 5, 5),)]


@pattern("channels-last-chain")
def channels_last_chain() -> Built:
    """Convolutions and a linear layer on an input that lies in memory with its channels last."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    return model, [(torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last),)]


@pattern("pixel-shuffle")
def pixel_shuffle() -> Built:
    """A convolution whose channels become pixels."""
    return nn.Sequential(nn.Conv2d(2, 12, 3, padding=1), nn.PixelShuffle(2)), [(torch.randn(1, 2, 5, 5),)]


@pattern("channel-shuffle")
def channel_shuffle() -> Built:
    """Channels exchanged between the groups of two grouped convolutions."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(6, 6, 1, groups=3)
            self.second = nn.Conv2d(6, 6, 3, padding=1, groups=6)

        def forward(self, x: torch.Tensor) -> Any:
            x = nn.functional.relu(self.first(x))
            n, c, h, w = x.shape
            x = x.view(n, 3, c // 3, h, w).transpose(1, 2).reshape(n, c, h, w)
            return self.second(x)

    return Model(), [(torch.randn(2, 6, 5, 5),)]


@pattern("large-kernels")
def large_kernels() -> Built:
    """Kernels of 5 and 7, of one axis, too, over images that fill several vectors and some that do not.

    Depthwise as in EfficientNet and ConvNeXt, dense as the first layer of ResNet, transposed as in decoders.
    """

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((5, 1), (5, 2), (7, 1), (7, 2), ((1, 7), 1), ((6, 1), (2, 1)))
            self.depthwise = nn.ModuleList(nn.Conv2d(6, 6, size, step, 2, groups=6) for size, step in sizes)
            self.several = nn.Conv2d(6, 12, 5, 1, 2, groups=6)
            self.dense = nn.Conv2d(6, 5, 7, 2, 3, bias=False)
            self.transposed = nn.ConvTranspose2d(6, 5, 5, 2, 2, 1)

        def forward(self, x: torch.Tensor, narrow: torch.Tensor) -> Any:
            layers = (*self.depthwise, self.several, self.dense, self.transposed)
            return tuple(layer(images) for layer in layers for images in (x, narrow))

    return Model(), [(torch.randn(1, 6, 21, 24), torch.randn(2, 6, 9, 11))]


@pattern("every-width")
def every_width() -> Built:
    """Images of 9 to 17 columns: kernels that compute several pixels at once end a row at each place of a vector."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (7, 2))
            self.depthwise = nn.ModuleList(nn.Conv2d(2, 2, size, step, size // 2, groups=2) for size, step in kinds)
            self.dense = nn.ModuleList(nn.Conv2d(2, 3, 3, step, 1) for step in (1, 2))

        def forward(self, *images: torch.Tensor) -> Any:
            return tuple(layer(x) for layer in (*self.depthwise, *self.dense) for x in images)

    return Model(), [tuple(torch.randn(1, 2, 3, width) for width in range(9, 18))]
