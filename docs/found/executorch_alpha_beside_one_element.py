"""add with alpha scales the wrong operand where the first one has a single element.

1 + 10 * [1, 2] is [11, 21]; the kernel computes 10 * 1 + [1, 2].
"""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/edge/rules/arithmetic.py: _with_alpha",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, y = torch.tensor([1.0]), torch.tensor([1.0, 2.0])

    def function(x, y):
        return torch.add(x, y, alpha=10)

    return differs(stock(function, x, y), function(x, y))
