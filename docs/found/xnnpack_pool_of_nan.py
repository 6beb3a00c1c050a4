"""Maximum pooling ignores NaN."""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/common.py: POOLED_NAN",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([[[[torch.nan, 1.0], [1.0, 1.0]]]])

    def function(x):
        return torch.nn.functional.max_pool2d(x, 2)

    return differs(xnnpack(function, x), function(x))
