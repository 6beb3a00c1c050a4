"""A convolution of float16 sums up in float16: 4096 ones are 2048."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _convolution_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, y = (torch.ones(1, 4096, 1, dtype=torch.float16) for _ in range(2))

    def function(x, y):
        return torch.nn.functional.conv1d(x, y)

    return differs(stock(function, x, y), function(x, y))
