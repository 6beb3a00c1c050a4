"""Powers of integers are computed in float64 and saturate; they should wrap around."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _power_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([65537], dtype=torch.int32)

    def function(x):
        return x**2

    return differs(stock(function, x), function(x))
