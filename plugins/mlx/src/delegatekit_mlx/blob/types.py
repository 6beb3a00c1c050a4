"""Element types: torch's, and ExecuTorch's numbers of those that a graph may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

#: ExecuTorch's number -> torch's dtype. Apple's GPUs have no float64.
DTYPES: Final = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    11: torch.bool,
    15: torch.bfloat16,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}
#: torch's dtype -> ExecuTorch's number.
NUMBERS: Final = {dtype: number for number, dtype in DTYPES.items()}


def key_of(dtype: torch.dtype, shape: Sequence[int]) -> str:
    """What the keys of constants of a type and shape begin with; the hash of their content follows.

    >>> key_of(torch.float32, (2, 3))
    'mlx_float32_2x3_'
    """
    return f"mlx_{str(dtype).removeprefix('torch.')}_{'x'.join(map(str, shape))}_"
