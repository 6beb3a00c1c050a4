"""fmod of uint8 and a negative number divides by another number than PyTorch.

PyTorch takes -3 as uint8, which is 253, and says 7.
"""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _fmod_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([7], dtype=torch.uint8)

    def function(x):
        return torch.fmod(x, -3)

    return differs(stock(function, x), function(x))
