"""The compiler refuses a linear layer over columns after a convolution, both in int8 with dynamic inputs."""

from __future__ import annotations

import torch
from tools import failure, quantized_on_the_way, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/quantization.py: _chain_obstacle",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 8)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.Linear(6, 6))
    return failure(xnnpack, quantized_on_the_way(model, x), x)
