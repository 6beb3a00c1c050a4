"""A convolution of single pixels after a linear layer over columns, both in int8 with dynamic inputs, is wrong."""

from __future__ import annotations

import torch
from tools import differs, quantized_on_the_way, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/quantization.py: _chain_obstacle",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, 5, 6)
    model = quantized_on_the_way(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Conv2d(6, 4, 1)), x)
    return differs(xnnpack(model, x), model(x).detach(), rtol=0.5)
