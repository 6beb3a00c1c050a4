"""Small networks of the kinds that run on microcontrollers; random weights, norms with statistics of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


def _unit(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class Digits(nn.Module):
    """Digits of 8 by 8 pixels: a residual, a function, an average, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise, self.pointwise = _unit(1, 16), _unit(16, 16, groups=16), _unit(16, 16, 1)
        self.down, self.head = nn.Conv2d(16, 32, 3, 2, 1), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.pointwise(self.depthwise(x))
        x = functional.hardswish(self.down(x)).mean((2, 3))
        return torch.softmax(self.head(x), -1)


class Keywords(nn.Module):
    """Spoken words: depthwise separable convolutions over 49 frames of 10 coefficients."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, channels, (10, 4), 2, (5, 1)), nn.BatchNorm2d(channels), nn.ReLU()]
        for _ in range(3):
            layers += [_unit(channels, channels, groups=channels), _unit(channels, channels, 1)]
        layers += [nn.Dropout(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 12)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Segmentation(nn.Module):
    """A U-Net: downsampled and upsampled images are joined with the originals."""

    def __init__(self, bilinear: bool = False) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(_unit(inputs, outputs), _unit(outputs, outputs))

        def larger(inputs: int, outputs: int, mode: str) -> nn.Module:
            if bilinear:
                return nn.Sequential(nn.Upsample(scale_factor=2, mode=mode), nn.Conv2d(inputs, outputs, 1))
            return nn.ConvTranspose2d(inputs, outputs, 2, 2)

        self.first, self.second, self.third = double(3, 8), double(8, 16), double(16, 32)
        self.up, self.further = larger(32, 16, "bilinear"), larger(16, 8, "nearest")
        self.join, self.last, self.out = double(32, 16), double(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        x = self.up(self.third(functional.max_pool2d(second, 2)))
        x = self.further(self.join(torch.cat([x, second], 1)))
        return self.out(self.last(torch.cat([x, first], 1)))


class Squeezed(nn.Module):
    """Channels weighted by gates computed from an average of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.squeeze = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 4, 1)
        self.excite, self.out = nn.Conv2d(4, 16, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.stem(x))
        gates = self.excite(functional.silu(self.squeeze(functional.adaptive_avg_pool2d(x, 1))))
        return self.out(x * torch.sigmoid(gates))


def perceptron() -> nn.Module:
    """Three linear layers."""
    return nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 5))


class Attention(nn.Module):
    """One head over patches of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        scores = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) * 0.25, -1)
        return x + scores @ self.value(x)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "digits": (Digits, (1, 1, 8, 8)),
    "keywords": (Keywords, (1, 1, 49, 10)),
    "segmentation": (Segmentation, (1, 3, 32, 32)),
    "segmentation, bilinear": (lambda: Segmentation(bilinear=True), (1, 3, 32, 32)),
    "squeezed": (Squeezed, (1, 3, 33, 32)),
    "perceptron": (perceptron, (4, 40)),
    "attention": (Attention, (1, 3, 16, 16)),
}


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network in eval mode and an input."""
    make, shape = NETWORKS[name]
    module = make().eval()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None and layer.running_var is not None
            layer.running_mean.normal_(0, 0.3)
            layer.running_var.uniform_(0.5, 2.0)
    return module, torch.randn(shape)
