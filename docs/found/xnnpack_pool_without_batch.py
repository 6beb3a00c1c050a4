"""The partitioner takes pools of images without a batch, and then cannot lower them: a pass demands four dimensions."""

from __future__ import annotations

import torch
from tools import failure, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/spatial.py: _max_pool",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(xnnpack, lambda x: torch.nn.functional.max_pool2d(x, 2, 2), torch.ones(3, 4, 4))
