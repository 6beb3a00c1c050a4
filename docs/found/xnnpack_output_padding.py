"""The partitioner takes transposed convolutions that XNNPACK then refuses to run.

They are those whose padding of the output is not less than the stride.
"""

from __future__ import annotations

import torch
from tools import failure, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/spatial.py: convolution_padding",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    weight = torch.ones(2, 4, 1)

    def function(x):
        return torch.nn.functional.conv_transpose1d(x, weight, None, 2, 0, 2, 2, 3)

    return failure(xnnpack, function, torch.ones(3, 2, 1))
