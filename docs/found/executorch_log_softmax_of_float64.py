"""log_softmax does not take float64: the file loads, and every call fails."""

from __future__ import annotations

import torch
from tools import stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _log_softmax_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    try:
        stock(lambda x: torch.log_softmax(x, 0), torch.ones(3, dtype=torch.float64))
    except RuntimeError as error:
        return str(error)
    return None
