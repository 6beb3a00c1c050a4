"""gelu(inf) is NaN in a tensor of 32 elements, and inf in one of a single element.

The vectorized kernel for AVX-512 multiplies 0 by infinity; those for other processors do not.
"""

from __future__ import annotations

import torch
from tools import needs_avx512

PRODUCT = "PyTorch"
PACKAGE = "torch"
VERSION = "2.13.0"
AVOIDED = ("conformance/src/delegatekit_conformance/strategies/elementwise.py: _gelu",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    needs_avx512()
    many, one = (torch.nn.functional.gelu(torch.full((count,), torch.inf)) for count in (32, 1))
    return None if many[0] == one[0] else f"{many[0].item()} among 32, {one[0].item()} alone"
