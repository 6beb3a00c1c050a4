"""max_pool2d(x, 2) does not lower: where the stride is left out, the converter misses an input."""

from __future__ import annotations

import torch
from tools import coreml, failure

PRODUCT = "ExecuTorch's Core ML lowering"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/arguments.py: windows_of",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(coreml, lambda x: torch.nn.functional.max_pool2d(x, 2), torch.ones(1, 3, 4, 4))
