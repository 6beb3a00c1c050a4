"""The minimum of NaN and a number is the number, on one side only."""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/common.py: MINIMUM_NAN",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, y = torch.tensor([torch.nan, 1.0]), torch.tensor([1.0, torch.nan])

    def function(x, y):
        return torch.minimum(x, y)

    return differs(xnnpack(function, x, y), function(x, y))
