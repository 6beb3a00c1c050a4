"""expm1 is converted to exp(x) - 1: small numbers, which it exists for, become 0, in float32, too."""

from __future__ import annotations

import numpy as np
import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/composed/functions.py: expm1",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    kinds = [operation.op_type for operation in mil(torch.expm1, torch.tensor([1e-8]))]
    if kinds != ["exp", "sub"]:
        return None
    return f"{kinds}: {np.exp(np.float32(1e-8)) - np.float32(1)}, should be 1e-08"
