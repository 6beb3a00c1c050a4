"""The floor division of floats leaves a rounding error: its results are not whole numbers."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _division_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, y = torch.arange(1, 200) * 0.1, torch.tensor([0.1])

    def function(x, y):
        return torch.div(x, y, rounding_mode="floor")

    return differs(stock(function, x, y), function(x, y))
