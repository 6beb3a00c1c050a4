"""fill(x, value) with a tensor as the value is converted to x: nothing is filled."""

from __future__ import annotations

import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/operators/shape.py: _copy",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    kinds = [operation.op_type for operation in mil(lambda x: torch.fill(x, x.sum()), torch.ones(3))]
    return f"{kinds}: x itself" if kinds == ["identity"] else None
