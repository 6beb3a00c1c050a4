"""The partitioner takes operands of uint8 and bfloat16, which the converter does not know."""

from __future__ import annotations

import torch
from tools import coreml, failure

PRODUCT = "ExecuTorch's Core ML lowering"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/support.py: _TAKEN",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(coreml, lambda x, y: x + y, torch.ones(3), torch.ones(3, dtype=torch.uint8))
