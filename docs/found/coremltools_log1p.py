"""log1p is converted to log(x + 1): small numbers, which it exists for, become 0, in float32, too."""

from __future__ import annotations

import numpy as np
import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/composed/functions.py: log1p",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    (operation,) = mil(torch.log1p, torch.tensor([1e-8]))
    added = operation.inputs["epsilon"].val if operation.op_type == "log" else 0
    return f"log(x + {added}): {np.log(np.float32(1e-8) + added)}, should be 1e-08" if added == 1 else None
