"""interpolate(antialias=True) is converted to the same operation as without: nothing is smoothed."""

from __future__ import annotations

import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("core/src/delegatekit/edge/decompose.py: WHOLE",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""

    def function(x):
        return torch.nn.functional.interpolate(x, size=(3, 3), mode="bilinear", antialias=True)

    kinds = [operation.op_type for operation in mil(function, torch.ones(1, 1, 9, 9))]
    return f"{kinds}: every third pixel is read, and no other" if kinds == ["upsample_bilinear"] else None
