"""A layer norm of float64 takes its mean in float32: numbers far from zero come out hundreds of times too large."""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _layer_norm_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([[1e8 + 1, 1e8 + 2, 1e8 + 4]], dtype=torch.float64)

    def function(x):
        return torch.nn.functional.layer_norm(x, (3,))

    return differs(stock(function, x), function(x), rtol=1e-6)
