"""Complex values of the graph under construction: nodes `aten.complex(real, imaginary)` only."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

aten = torch.ops.aten

_REAL: Final = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_COMPLEX: Final = {real: dtype for dtype, real in _REAL.items()}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex dtype; a real dtype itself."""
    return _REAL.get(dtype, dtype)


def complex_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a complex value with parts of this dtype."""
    return _COMPLEX[dtype]


def is_pair(item: Any) -> bool:
    """True if an argument is a complex value."""
    return isinstance(item, Node) and item.target is aten.complex.default


def is_complex(value: Any) -> bool:
    """True if a fake value is a complex tensor, or one of several values is."""
    if isinstance(value, torch.Tensor):
        return value.dtype.is_complex
    return isinstance(value, tuple | list) and any(map(is_complex, value))
