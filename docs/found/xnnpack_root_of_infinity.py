"""The square root of infinity is NaN."""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/common.py: ROOT_OF_INFINITY",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.full((4,), torch.inf)

    def function(x):
        return torch.sqrt(x)

    return differs(xnnpack(function, x), function(x))
