"""reciprocal is converted to an inverse that adds 1e-4: 1 / 0 is 10000, and 1 / 1e-4 is 5000."""

from __future__ import annotations

import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/composed/number.py: reciprocal",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    (operation,) = mil(torch.reciprocal, torch.ones(3))
    added = operation.inputs["epsilon"].val if operation.op_type == "inverse" else 0
    return f"1 / (x + {added}): {1 / (1e-4 + added):.0f} for 1e-4, should be 10000" if added >= 1e-4 else None
