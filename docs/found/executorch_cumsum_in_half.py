"""A cumulative sum of float16 is summed up in float16, and stops growing at 2048."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _cumsum_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.ones(4000, dtype=torch.float16)

    def function(x):
        return x.cumsum(0)

    return differs(stock(function, x), function(x))
