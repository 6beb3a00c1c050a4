"""The sine of 1e10 is -4891.

The argument is reduced in one step, and what is left is far outside of the polynomial's range.
"""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/elementwise.py: _WAVES",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([1e10, 1e20, 1.0, 2.0])

    def function(x):
        return torch.sin(x)

    return differs(xnnpack(function, x), function(x), rtol=1e-4)
