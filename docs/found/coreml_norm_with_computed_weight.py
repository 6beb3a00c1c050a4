"""The partitioner takes layer norms whose weight is computed, which the operation does not take."""

from __future__ import annotations

import torch
from tools import coreml, failure

PRODUCT = "ExecuTorch's Core ML lowering"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/operators/normalization.py: _layer_norm",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(coreml, lambda x, w: torch.nn.functional.layer_norm(x, (4,), w), torch.ones(2, 4), torch.ones(4))
