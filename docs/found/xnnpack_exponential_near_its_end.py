"""The exponential is infinite from 88.38 on, float32's from 88.73."""

from __future__ import annotations

import torch
from tools import differs, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = (
    "plugins/xnnpack/src/delegatekit_xnnpack/operators/functions.py: _expm1",
    "plugins/xnnpack/src/delegatekit_xnnpack/operators/functions.py: _half_power",
)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.full((16,), 88.5)
    found = xnnpack(torch.exp, x)
    return differs(found, torch.exp(x)) if found.isinf().any() else None
