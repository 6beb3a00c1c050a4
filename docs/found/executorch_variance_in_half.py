"""The variance of float16 is summed up in float16."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _narrow_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = (torch.arange(4096) / 4096).half()[None]

    def function(x):
        return x.var(1)

    return differs(stock(function, x), function(x), rtol=0.01)
