"""The remainder of integers has the sign of the dividend.

PyTorch's has that of the divisor, as in Python: -7 % 3 is 2.
"""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/edge/rules/arithmetic.py: _remainder",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, y = torch.tensor([-7, 7]), torch.tensor([3, -3])

    def function(x, y):
        return torch.remainder(x, y)

    return differs(stock(function, x, y), function(x, y))
