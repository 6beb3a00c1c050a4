"""addmm of float16 sums up in float16: 4096 ones are 2048."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _narrow_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    b, x, y = (torch.ones(shape, dtype=torch.float16) for shape in ((1,), (1, 4096), (4096, 1)))

    def function(b, x, y):
        return torch.addmm(b, x, y)

    return differs(stock(function, b, x, y), function(b, x, y))
