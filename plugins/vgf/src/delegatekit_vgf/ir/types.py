"""Element types of PyTorch, as TOSA has them."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_toolkit.tosa import DType

#: int64 is computed in 32 bits, and only inside a delegate.
DTYPES: Final = {
    torch.float32: DType.FP32,
    torch.float16: DType.FP16,
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT32,
    torch.bool: DType.BOOL,
}
FLOATS: Final = frozenset((DType.FP32, DType.FP16))
#: Significant bits: 0 for integers, -1 for booleans.
DIGITS: Final = {DType.FP32: 24, DType.FP16: 11, DType.BOOL: -1}
