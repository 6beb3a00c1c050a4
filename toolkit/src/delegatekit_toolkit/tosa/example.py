"""A worked example: a small quantized network as a TOSA graph, also used by tests.

>>> graph = small_network()
>>> [tensor.name for tensor in graph.outputs]
['flat']
"""

from __future__ import annotations

import numpy as np

from .graph import Graph
from .numerics import multipliers_and_shifts
from .operators import Add, AvgPool2d, Conv2d, DepthwiseConv2d, Rescale, Reshape
from .tensors import Tensor
from .types import DType


def small_network() -> Graph:
    """Convolution, depthwise convolution, a sum, the average of each channel; the input is int8, 1 x 8 x 8 x 16."""
    random = np.random.default_rng(0)
    graph = Graph("small")
    int8, int32 = DType.INT8, DType.INT32

    def scaled(x: Tensor, scales: list[float], name: str, dtype: DType = int8, zero: int = 0) -> Tensor:
        multipliers, shifts = multipliers_and_shifts(scales)
        operands = [
            x,
            graph.constant(multipliers, int32),
            graph.constant(shifts, int8),
            graph.constant([0], x.dtype),
            graph.constant([zero], dtype),
        ]
        return graph.add(Rescale(per_channel=len(scales) > 1), operands, x.shape, dtype, name)

    x = graph.input("x", (1, 8, 8, 16), int8)
    zero = graph.constant([0], int8)
    weight = graph.constant(random.integers(-127, 128, (16, 3, 3, 16)), int8, "conv_weight")
    bias = graph.constant(random.integers(-500, 500, 16), int32, "conv_bias")
    sums = graph.add(Conv2d((1, 1, 1, 1)), [x, weight, bias, zero, zero], x.shape, int32, "conv_sums")
    conv = scaled(sums, [2e-4 * (1 + i / 16) for i in range(16)], "conv", zero=-3)
    weight = graph.constant(random.integers(-127, 128, (3, 3, 16, 1)), int8, "depthwise_weight")
    minus = graph.constant([-3], int8)
    sums = graph.add(DepthwiseConv2d((1, 1, 1, 1)), [conv, weight, bias, minus, zero], x.shape, int32, "depthwise_sums")
    depthwise = scaled(sums, [1e-3], "depthwise")
    left, right = scaled(x, [0.5 * 2**20], "left", int32), scaled(depthwise, [0.4 * 2**20], "right", int32)
    total = scaled(graph.add(Add(), [left, right], x.shape, int32, "total"), [2.0**-20], "sum")
    pooled = graph.add(AvgPool2d((8, 8)), [total, zero, zero], (1, 1, 1, 16), int8, "mean")
    graph.output(graph.add(Reshape(), [pooled, graph.constant([1, 16], DType.SHAPE)], (1, 16), int8, "flat"))
    graph.verify()
    return graph
