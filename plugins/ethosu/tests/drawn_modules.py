"""Draws modules of a few layers: all kinds of them, consecutively in unusual orders."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import nn

#: A function of one tensor, and its name.
Named = tuple[str, Callable[[torch.Tensor], torch.Tensor]]

SHAPES = ((1, 4, 8, 8), (2, 3, 7, 9), (1, 8, 5, 12), (3, 4, 6, 6), (2, 8, 10, 9), (2, 6, 10), (1, 16, 9), (4, 12))
SHAPES_OF_MORE = ((1, 2, 3, 4, 5), (2, 1, 3, 2, 2, 4))
#: Larger ones take long to execute.
_MOST = 20_000


class Step(nn.Module):
    """A function as a layer."""

    def __init__(self, name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.name


def draw(seed: int) -> tuple[nn.Sequential, torch.Tensor]:
    """A module and its input; the same for each seed."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    x = torch.randn(chance.choice((*SHAPES, *SHAPES_OF_MORE)))
    layers: list[nn.Module] = []
    result, wanted = x, chance.randint(2, 6)
    for _ in range(60):
        if len(layers) == wanted:
            break
        layer = chance.choice(list(_layers(chance, tuple(result.shape)))).eval()
        try:
            made = layer(result)
        except RuntimeError:  # Windows that are too large, for instance.
            continue
        if 0 < made.dim() <= 6 and 0 < made.numel() <= _MOST:
            layers.append(layer)
            result = made
    return nn.Sequential(*layers).eval(), x


def _layers(chance: random.Random, shape: tuple[int, ...]) -> Iterator[nn.Module]:
    """One of each kind that accepts the shape, with settings drawn anew."""
    if len(shape) == 4:
        yield from _of_images(chance, shape)
    if len(shape) == 3:
        yield nn.Conv1d(shape[1], chance.choice((2, 5, 8)), chance.choice((1, 3)), chance.choice((1, 2)), 1)
    if len(shape) > 1:
        yield nn.Linear(shape[-1], chance.choice((3, 8, 10)))
        yield nn.PReLU(shape[1])
    yield from (nn.ReLU(), nn.ReLU6(), nn.Hardswish(), nn.Sigmoid(), nn.LeakyReLU(0.1), nn.GELU())
    yield from (Step(*named) for named in (*_of_axes(chance, shape), *_of_values()))


def _of_images(chance: random.Random, shape: tuple[int, ...]) -> Iterator[nn.Module]:
    channels = shape[1]
    for groups in (1, 1, channels, 2 - channels % 2):
        kernel, stride = chance.choice((1, 1, 2, 3, (1, 3), 5)), chance.choice((1, 1, 1, 2, 3, (2, 1)))
        padding, dilation = chance.choice((0, 0, 1, 1, 2)), chance.choice((1, 1, 1, 2, 3))
        count = groups * chance.choice((1, 2, 4))
        yield nn.Conv2d(channels, count, kernel, stride, padding, dilation, groups)
    window, step, pad = chance.choice((2, 3)), chance.choice((1, 2, 3)), chance.choice((0, 1))
    stride, groups = min(step, 2), 2 - channels % 2
    settings = stride, pad, chance.randrange(stride), chance.choice((1, groups))
    yield nn.ConvTranspose2d(channels, groups * chance.choice((1, 3, 4)), chance.choice((1, 2, 3, 4)), *settings)
    yield nn.MaxPool2d(window, step, pad, ceil_mode=chance.random() < 0.3)
    yield nn.AvgPool2d(window, step, pad, chance.random() < 0.3, chance.random() < 0.5)
    yield nn.AdaptiveAvgPool2d(1)
    yield nn.Upsample(scale_factor=2, mode=chance.choice(("nearest", "bilinear")))
    yield nn.ZeroPad2d(tuple(chance.randrange(3) for _ in range(4)))  # type: ignore[arg-type]
    if channels % 4 == 0:
        yield nn.PixelShuffle(2)
    if channels % 2 == 0:
        yield nn.GLU(1)
        yield Step("shuffle", lambda x: x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2))
        yield Step("swap", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1))


def _of_axes(chance: random.Random, shape: tuple[int, ...]) -> Iterator[Named]:
    rank = len(shape)
    axis = chance.randrange(rank)
    order = chance.sample(range(rank), rank)
    first = chance.randrange(shape[axis])
    size = chance.randint(1, shape[axis] - first)
    yield f"permute {order}", lambda x: x.permute(order)
    yield f"narrow {axis} {first} {size}", lambda x: x.narrow(axis, first, size)
    yield f"flip {axis}", lambda x: x.flip(axis)
    yield f"roll {axis}", lambda x: x.roll(1, axis)
    yield f"repeat {axis}", lambda x: torch.cat([x] * 2, axis)
    yield f"join {axis}", lambda x: torch.cat([x, x.tanh()], axis)
    yield f"stack {axis}", lambda x: torch.stack([x, -x], axis).flatten(0, 1)
    yield f"unsqueeze {axis}", lambda x: x.unsqueeze(axis)
    yield "strided", lambda x: x[..., ::2]
    if shape[axis] > 1:
        yield f"softmax {axis}", lambda x: x.softmax(axis)
    for keep in (True, False) if rank > 2 else (True,):
        yield f"amax {axis} {keep}", lambda x, keep=keep: x.amax(axis, keep)  # type: ignore[misc]
        yield f"amin {axis} {keep}", lambda x, keep=keep: x.amin(axis, keep)  # type: ignore[misc]
        yield f"mean {axis} {keep}", lambda x, keep=keep: x.mean(axis, keep)  # type: ignore[misc]
        yield f"sum {axis} {keep}", lambda x, keep=keep: x.sum(axis, keep)  # type: ignore[misc]
    mask = torch.rand(shape[-1]) < 0.3
    yield "masked", lambda x: x.masked_fill(mask, -1e9).softmax(-1)
    yield f"every second {axis}", lambda x: x[(*[slice(None)] * axis, slice(None, None, 2))]
    yield f"divided {axis}", lambda x: x / (torch.arange(x.shape[axis]) + 1.5).view(-1, *[1] * (rank - 1 - axis))
    yield f"add amax {axis}", lambda x: x + x.amax(axis, True)
    yield f"mul mean {axis}", lambda x: x * x.mean(axis, True)
    yield f"div {axis}", lambda x: x / (x.abs().amax(axis, True) + 1)
    if rank > 1:
        yield "swap sizes", lambda x: x.reshape(x.shape[1], x.shape[0], *x.shape[2:])
        yield "gram", lambda x: x @ x.mT
        yield "attend", lambda x: (0.3 * x.mT).softmax(-1) @ x
    if rank > 2:
        yield "flatten", lambda x: x.flatten(0, 1)
        yield "flatten rest", lambda x: x.flatten(2)


def _of_values() -> Iterator[Named]:
    yield "sin", torch.sin
    yield "abs", torch.abs
    yield "affine", lambda x: x * 0.7 + 0.2
    yield "residual", lambda x: x + x.sigmoid()
    yield "decay", lambda x: torch.exp(-x.abs())
    yield "less 1", lambda x: torch.expm1(-x.relu())
    yield "bounds", lambda x: x.clamp(-0.5, 0.4)
    yield "maximum", lambda x: torch.maximum(x, x * 0.3)
