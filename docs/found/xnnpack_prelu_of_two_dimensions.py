"""The partitioner takes PReLU of any rank, and then cannot lower it: a pass demands four dimensions."""

from __future__ import annotations

import torch
from tools import xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/elementwise.py: _prelu",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    try:
        xnnpack(torch.nn.PReLU(), torch.ones(2, 3))
    except Exception as error:
        return str(error).splitlines()[0]
    return None
