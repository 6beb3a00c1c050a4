"""The sum of float64 or int64 along one dimension is computed in float32.

Three times 16777217 is 50331651.
"""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _sum_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.full((1, 3), 16777217)

    def function(x):
        return x.sum(1)

    return differs(stock(function, x), function(x))
