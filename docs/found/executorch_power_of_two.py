"""Two to an integer tensor saturates beyond 63 bits; the bits should leave the type."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _power_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([62, 64, 70])

    def function(x):
        return torch.pow(2, x)

    return differs(stock(function, x), function(x))
