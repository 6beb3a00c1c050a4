"""exp(NaN) is 0."""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/common.py: EXPONENTIAL_NAN",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.full((4,), torch.nan)

    def function(x):
        return torch.exp(x)

    return differs(xnnpack(function, x), function(x))
