"""Conversions around a quantized layer that the partitioner refuses, as its bias is int32, are dropped.

They were marked as parts of the layer before it was refused, and are taken alone after that.
"""

from __future__ import annotations

import torch
from tools import differs, failure, lowered, run

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("integrations/executorch/src/delegatekit_executorch/readings.py: _turned",)


class Layer(torch.nn.Module):
    """A convolution of int8 whose bias is int32, with its input and output in int8."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(-20, 20, dtype=torch.int8).view(5, 8, 1, 1))
        self.register_buffer("bias", torch.arange(5, dtype=torch.int32))
        self.register_buffer("scales", torch.full((5,), 0.01))
        self.register_buffer("zeros", torch.zeros(5, dtype=torch.int64))

    def forward(self, x):
        """Floats around them."""
        operators = torch.ops.quantized_decomposed
        x = operators.quantize_per_tensor.default(x, 0.05, 0, -128, 127, torch.int8)
        x = operators.dequantize_per_tensor.default(x, 0.05, 0, -128, 127, torch.int8)
        channels = operators.dequantize_per_channel.default
        weight = channels(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        bias = channels(self.bias, self.scales * 0.05, self.zeros, 0, -(2**31), 2**31 - 1, torch.int32)
        y = torch.nn.functional.conv2d(x, weight, bias)
        y = operators.quantize_per_tensor.default(y, 0.01, 0, -128, 127, torch.int8)
        return operators.dequantize_per_tensor.default(y, 0.01, 0, -128, 127, torch.int8)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    import executorch.kernels.quantized  # noqa: F401  (kernels of the conversions outside)
    import torch.ao.quantization.fx._decomposed
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    x = torch.linspace(-2, 2, 8).view(1, 8, 1, 1)
    file = lowered(Layer(), [x], [XnnpackPartitioner()])
    return failure(run, file, x) or differs(run(file, x), Layer()(x), rtol=0.1)
