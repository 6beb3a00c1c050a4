"""The logarithm of infinity is 88.4 on processors without AVX-512."""

from __future__ import annotations

import torch
from tools import differs, needs_less_than_avx512, xnnpack

PRODUCT = "XNNPACK"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/xnnpack/src/delegatekit_xnnpack/operators/common.py: LOGARITHM_ENDS",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    needs_less_than_avx512()
    x = torch.full((16,), torch.inf)

    def function(x):
        return torch.log(x)

    return differs(xnnpack(function, x), function(x))
