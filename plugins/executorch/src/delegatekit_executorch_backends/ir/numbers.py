"""The arithmetic of tensors and numbers that ExecuTorch's export writes as arithmetic of two tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

#: Arithmetic of a tensor and a number -> the same of two tensors.
OF_TENSORS: Final[Mapping[Any, Any]] = {
    getattr(torch.ops.aten, name).Scalar: getattr(torch.ops.aten, name).Tensor for name in ("add", "sub", "mul", "div")
}


def fits(number: Any, dtype: torch.dtype) -> bool:
    """True if a number can be a tensor of the dtype that its call computes in."""
    if not isinstance(number, bool | int | float):
        return False
    if dtype.is_floating_point:
        return True
    known = torch.iinfo(dtype) if dtype != torch.bool else None
    return not isinstance(number, float) and (known is None or known.min <= number <= known.max)
