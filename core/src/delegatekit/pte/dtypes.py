"""ExecuTorch's element types as torch dtypes, and back."""

from __future__ import annotations

import torch

from delegatekit_api import UnsupportedError

from .schema import ScalarType

#: Types that only name quantized storage have no entry: files use the plain integer types.
TORCH_DTYPES: dict[ScalarType, torch.dtype] = {
    ScalarType.BYTE: torch.uint8,
    ScalarType.CHAR: torch.int8,
    ScalarType.SHORT: torch.int16,
    ScalarType.INT: torch.int32,
    ScalarType.LONG: torch.int64,
    ScalarType.HALF: torch.float16,
    ScalarType.FLOAT: torch.float32,
    ScalarType.DOUBLE: torch.float64,
    ScalarType.BOOL: torch.bool,
    ScalarType.BFLOAT16: torch.bfloat16,
    ScalarType.FLOAT8E5M2: torch.float8_e5m2,
    ScalarType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ScalarType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ScalarType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ScalarType.UINT16: torch.uint16,
    ScalarType.UINT32: torch.uint32,
    ScalarType.UINT64: torch.uint64,
}
_SCALAR_TYPES = {dtype: code for code, dtype in TORCH_DTYPES.items()}


def scalar_type(dtype: torch.dtype) -> ScalarType:
    """The code of a torch dtype; raises UnsupportedError for complex and other types that the format lacks."""
    if dtype not in _SCALAR_TYPES:
        raise UnsupportedError(f"{dtype} has no element type in a .pte file", hint="convert the tensor first")
    return _SCALAR_TYPES[dtype]


def torch_dtype(code: int) -> torch.dtype:
    """The torch dtype of a code; raises UnsupportedError for codes that torch has no plain dtype for."""
    try:
        return TORCH_DTYPES[ScalarType(code)]
    except (KeyError, ValueError):
        raise UnsupportedError(f"element type {code} cannot be held by a torch tensor") from None
