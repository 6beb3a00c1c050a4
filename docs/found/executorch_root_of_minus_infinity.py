"""A power of 0.5 is not the square root: of -inf it gives inf; -inf has no root."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _power_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([-torch.inf, 4.0])

    def function(x):
        return torch.pow(x, 0.5)

    return differs(stock(function, x), function(x))
