"""The partitioner takes reductions of a tensor without dimensions, and the converter then fails."""

from __future__ import annotations

import torch
from tools import coreml, failure

PRODUCT = "ExecuTorch's Core ML lowering"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/arguments.py: reduced_axes",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(coreml, lambda x: torch.mean(x, 0), torch.tensor(1.0))
