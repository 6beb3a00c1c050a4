"""An adaptive average pool of float64 is computed in float32."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _double_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.full((1, 1, 2, 4), 16777217.0, dtype=torch.float64)

    def function(x):
        return torch.nn.functional.adaptive_avg_pool2d(x, (1, 2))

    return differs(stock(function, x), function(x))
