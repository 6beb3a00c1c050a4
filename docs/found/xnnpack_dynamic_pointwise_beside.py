"""A convolution in int8 with dynamic inputs is wrong beside one of single pixels, which reads the same input.

The second becomes a linear layer, with a scale for each pixel; the first gets its input with these scales, too.
"""

from __future__ import annotations

import torch
from tools import differs, quantized_on_the_way, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/quantization.py: _chain_obstacle",)


class Both(torch.nn.Module):
    """Two convolutions of one input."""

    def __init__(self):
        super().__init__()
        self.pixels = torch.nn.Conv2d(4, 4, 1)
        self.windows = torch.nn.Conv2d(4, 4, 3)

    def forward(self, x):
        """Both results."""
        first = self.pixels(x)
        return self.windows(x), first


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    torch.manual_seed(0)
    x = torch.randn(1, 4, 7, 6)
    model = quantized_on_the_way(Both(), x)
    return differs(xnnpack(model, x), model(x)[0].detach(), rtol=0.5)
