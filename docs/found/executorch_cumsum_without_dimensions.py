"""cumsum does not take a tensor without dimensions: the file loads, and every call fails."""

from __future__ import annotations

import torch
from tools import stock

PRODUCT = "ExecuTorch's operators"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/fallback/kernels.py: _cumsum_limit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    try:
        stock(lambda x: x.cumsum(0), torch.tensor(3.0))
    except RuntimeError as error:
        return str(error)
    return None
