"""gelu(-5) has an error of a quarter, and gelu(-5.5) is 0.

One is added to an error function that is nearly -1: few digits of the sum are left.
"""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/elementwise.py: _gelu",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([-5.0, -5.5] * 8)

    def function(x):
        return torch.nn.functional.gelu(x)

    return differs(xnnpack(function, x), function(x.double()).float(), rtol=0.1)
