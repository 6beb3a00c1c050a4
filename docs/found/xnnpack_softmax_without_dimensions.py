"""The partitioner takes a softmax of a tensor without dimensions, which XNNPACK then refuses to run."""

from __future__ import annotations

import torch
from tools import failure, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/common.py: not_scalar",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(xnnpack, lambda x: torch.softmax(x, -1), torch.tensor(1.0))
