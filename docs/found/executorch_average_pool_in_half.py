"""An average pool of float16 sums up in float16: the average of 4096 ones is 0.5."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _narrow_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.ones(1, 1, 64, 64, dtype=torch.float16)

    def function(x):
        return torch.nn.functional.avg_pool2d(x, 64)

    return differs(stock(function, x), function(x))
