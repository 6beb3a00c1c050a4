"""The reciprocal square root of 0 is NaN; it should be infinity."""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/elementwise.py: _reciprocal_square_root",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([0.0, 4.0, 4.0, 4.0])

    def function(x):
        return torch.rsqrt(x)

    return differs(xnnpack(function, x), function(x))
