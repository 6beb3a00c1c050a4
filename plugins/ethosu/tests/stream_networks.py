"""Whole networks as TOSA files, with random weights: layers in sequence, and chains drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from stream_case import INT8, INT32, Array, Case, softmax

from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import Graph, Tensor

_HEADROOM = float(1 << 20)


def layer(
    case: Case,
    image: Tensor,
    depth: int,
    kernel: tuple[int, int] = (3, 3),
    stride: int = 1,
    *,
    depthwise: bool = False,
    activation: bool = True,
) -> Tensor:
    """A convolution with padding that keeps the size (divided by the stride) and, on request, what follows it."""
    _, height, width, channels = image.shape
    rows, columns = -(-height // stride), -(-width // stride)
    pads = [
        (count - 1) * stride + size - whole
        for count, size, whole in zip((rows, columns), kernel, (height, width), strict=True)
    ]
    # A kernel that is smaller than the stride leaves rows out: they are cropped first.
    if min(pads) < 0:
        kept = 1, height + min(pads[0], 0), width + min(pads[1], 0), channels
        operands = [image, case.sizes(0, 0, 0, 0), case.sizes(*kept)]
        image = case.graph.add(tosa.Slice(), operands, kept, INT8, "cut")
    pads = [max(pad, 0) for pad in pads]
    pad = pads[0] // 2, pads[0] - pads[0] // 2, pads[1] // 2, pads[1] - pads[1] // 2
    operator: tosa.Conv2d | tosa.DepthwiseConv2d
    if depthwise:
        depth, products = channels, math.prod(kernel)
        weights, operator = case.weights(*kernel, channels, 1), tosa.DepthwiseConv2d(pad, (stride, stride))
    else:
        products = math.prod(kernel) * channels
        weights, operator = case.weights(depth, *kernel, channels), tosa.Conv2d(pad, (stride, stride))
    bias = case.graph.constant(case.rng.integers(-5000, 5000, depth), INT32)
    operands = [image, weights, bias, case.point(case.size(-20, 20)), case.point(0)]
    sums = case.graph.add(operator, operands, (1, rows, columns, depth), INT32, "layer")
    spread = float(np.asarray(weights.data, np.float64).std()) * math.sqrt(products) * 60 + 1
    result = case.rescale(sums, INT8, case.scales(40 / spread, 120 / spread, depth), 0, case.size(-20, 20))
    return case.ending(result) if activation else result


def summed(case: Case, first: Tensor, second: Tensor) -> Tensor:
    """A quantized sum."""
    left, right = case.int32(first, 0.3 * _HEADROOM), case.int32(second, 0.5 * _HEADROOM)
    total = case.graph.add(tosa.Add(), [left, right], first.shape, INT32, "sum")
    return case.rescale(total, INT8, 1.3 / _HEADROOM, 0, case.size(-20, 20))


def mean(case: Case, image: Tensor) -> Tensor:
    points = [case.point(0), case.point(0)]
    operator = tosa.AvgPool2d((image.shape[1], image.shape[2]))
    return case.graph.add(operator, [image, *points], (1, 1, 1, image.shape[3]), INT8, "mean")


def hardswish(case: Case, image: Tensor) -> Tensor:
    points = np.arange(-128, 128) / 24
    values = np.rint(points * np.clip(points + 3, 0, 6) / 6 * 24).clip(-128, 127)
    return case.graph.add(tosa.Table(), [image, case.graph.constant(values, INT8)], image.shape, INT8, "hardswish")


def transposed(case: Case, image: Tensor, perms: tuple[int, ...]) -> Tensor:
    shape = [image.shape[axis] for axis in perms]
    return case.graph.add(tosa.Transpose(perms), [image], shape, INT8, "transposed")


def digits(case: Case) -> Tensor:
    """A small classifier of 8 by 8 pixels: all kinds of layers, hardswish, softmax."""
    image = case.input((1, 8, 8, 1))
    image = layer(case, image, 16)
    image = summed(case, image, layer(case, layer(case, image, 0, depthwise=True), 16, (1, 1)))
    image = hardswish(case, layer(case, image, 32, stride=2, activation=False))
    return softmax(case, layer(case, mean(case, image), 10, (1, 1), activation=False))


def keyword_spotting(case: Case) -> Tensor:
    """DS-CNN: 49 frames of 10 features, four depthwise separable layers, softmax over 12 words."""
    image = layer(case, case.input((1, 49, 10, 1)), 64, (10, 4), 2)
    for _ in range(4):
        image = layer(case, layer(case, image, 0, depthwise=True), 64, (1, 1))
    return softmax(case, layer(case, mean(case, image), 12, (1, 1), activation=False))


#: MobileNetV2: expansion, depth, number of blocks, stride of the first.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(case: Case, side: int = 96) -> Tensor:
    """MobileNetV2 with an input in PyTorch's order [1, 3, side, side]."""
    image = transposed(case, case.input((1, 3, side, side)), (0, 2, 3, 1))
    image = layer(case, image, 32, stride=2)
    for expansion, depth, many, first in _BLOCKS:
        for index in range(many):
            before, stride = image, first if index == 0 else 1
            if expansion != 1:
                image = layer(case, image, expansion * image.shape[3], (1, 1))
            image = layer(case, layer(case, image, 0, stride=stride, depthwise=True), depth, (1, 1), activation=False)
            if before.shape == image.shape:
                image = summed(case, before, image)
    image = mean(case, layer(case, image, 1280, (1, 1)))
    return layer(case, image, 1000, (1, 1), activation=False)


def u_net(case: Case) -> Tensor:
    """Down twice and up twice, once by a transposed convolution and once by doubling, with skip connections."""
    graph = case.graph
    first = layer(case, case.input((1, 32, 32, 3)), 16)
    second = layer(case, first, 32, stride=2)
    image = layer(case, second, 48, stride=2)
    bias = graph.constant(case.rng.integers(-5000, 5000, 32), INT32)
    operands = [image, case.weights(32, 2, 2, 48), bias, case.point(4), case.point(0)]
    sums = graph.add(tosa.TransposeConv2d(stride=(2, 2)), operands, (1, 16, 16, 32), INT32, "up")
    image = case.rescale(sums, INT8, [1 / 4000] * 32, 0, -3)
    image = graph.add(tosa.Concat(3), [image, second], (1, 16, 16, 64), INT8, "joined")
    image = layer(case, image, 16)
    operands = [image, case.sizes(4, 2, 4, 2), case.sizes(-1, -1), case.sizes(1, 1)]
    image = graph.add(tosa.Resize(tosa.ResizeMode.NEAREST), operands, (1, 32, 32, 16), INT8, "doubled")
    image = graph.add(tosa.Concat(3), [image, first], (1, 32, 32, 32), INT8, "joined")
    return case.table(layer(case, image, 4))


def drawn(case: Case) -> Tensor:
    """A chain of layers drawn at random: large maps, so that cascades and buffers can save memory."""
    graph = case.graph
    image = case.input((1, case.size(12, 48), case.size(12, 48), case.size(1, 16)))
    for _ in range(case.size(4, 10)):
        _, height, width, channels = image.shape
        kernel = case.one_of(1, 3, 3, 5), case.one_of(1, 3, 3, 5)
        kind = case.size(0, 9)
        if kind < 3:
            image = layer(case, image, case.size(4, 48), kernel, case.one_of(1, 1, 2))
        elif kind < 5:
            image = layer(case, image, 0, kernel, case.one_of(1, 1, 2), depthwise=True)
        elif kind < 7:
            size = case.one_of(1, 2, 3), case.one_of(1, 2, 3)
            pad = (size[0] - 1) // 2, size[0] // 2, (size[1] - 1) // 2, size[1] // 2
            if min(height, width) < 4:
                continue
            operator = tosa.AvgPool2d(size, (1, 1), pad) if kind == 5 else tosa.MaxPool2d(size, (1, 1), pad)
            points = [case.point(3), case.point(3)] if kind == 5 else []
            image = graph.add(operator, [image, *points], image.shape, INT8, "pool")
        elif kind == 7:
            image = summed(case, image, layer(case, image, channels))
        elif kind == 8:
            other = layer(case, image, case.size(4, 24), (1, 1))
            shape = (1, height, width, channels + other.shape[3])
            image = graph.add(tosa.Concat(3), [image, other], shape, INT8, "joined")
        elif height < 20:
            operands = [image, case.sizes(4, 2, 4, 2), case.sizes(-1, -1), case.sizes(1, 1)]
            shape = (1, 2 * height, 2 * width, channels)
            image = graph.add(tosa.Resize(tosa.ResizeMode.NEAREST), operands, shape, INT8, "doubled")
    return layer(case, image, 8)


#: Networks by name.
NETWORKS: dict[str, Callable[[Case], Tensor]] = {
    function.__name__: function for function in (digits, keyword_spotting, mobilenet_v2, u_net, drawn)
}


def build(name: str, seed: int = 0) -> tuple[bytes, list[Array]]:
    """A network's TOSA file and inputs for it. The same seed gives the same ones."""
    case = Case(np.random.default_rng((seed, len(name))), Graph(name), [])
    case.graph.output(NETWORKS[name](case))
    case.graph.verify()
    return tosa.write(case.graph), case.inputs
