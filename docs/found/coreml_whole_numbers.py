"""leaky_relu(x, 1) does not lower: a whole number is a constant of integers, which the operation does not take."""

from __future__ import annotations

import torch
from tools import coreml, failure

PRODUCT = "ExecuTorch's Core ML lowering"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/operators/functions.py: _leaky_relu",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(coreml, lambda x: torch.nn.functional.leaky_relu(x, 1), torch.ones(4))
