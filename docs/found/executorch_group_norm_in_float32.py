"""A group norm of float64 is computed in float32."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _double_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([[1e8 + 1, 1e8 + 2, 1e8 + 4]], dtype=torch.float64)

    def function(x):
        return torch.nn.functional.group_norm(x, 1)

    return differs(stock(function, x), function(x), rtol=1e-6)
