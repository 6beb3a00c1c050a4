"""fmod of int64 is computed in float64, which has 53 bits."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _fmod_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, y = torch.tensor([2**53 + 1]), torch.tensor([2**53])

    def function(x, y):
        return torch.fmod(x, y)

    return differs(stock(function, x, y), function(x, y))
