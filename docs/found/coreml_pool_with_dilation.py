"""The partitioner takes pools with dilation, which the converter refuses."""

from __future__ import annotations

import torch
from tools import coreml, failure

PRODUCT = "ExecuTorch's Core ML lowering"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/operators/spatial.py: no_gaps",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(coreml, lambda x: torch.nn.functional.max_pool2d(x, 2, 2, 0, 2), torch.ones(1, 3, 8, 8))
