"""The sign of NaN is NaN; PyTorch says 0."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _sign_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([torch.nan, -2.0])

    def function(x):
        return torch.sign(x)

    return differs(stock(function, x), function(x))
