"""Export and lowering keep max_pool3d, for which the runtime has no kernel: the file does not load."""

from __future__ import annotations

import torch
from tools import failure, stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/edge/rules/pooling.py: _largest_3d",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(stock, lambda x: torch.nn.functional.max_pool3d(x, 2), torch.ones(1, 3, 4, 4, 4))
