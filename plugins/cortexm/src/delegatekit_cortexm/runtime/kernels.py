"""The operators' kernels on the host: those in Python that ExecuTorch's wheel has, as on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

import torch

from delegatekit_api import Availability, FormatError

from ..ir import wheel
from ..ir.schemas import SCHEMAS

_LIBRARY: Final = "executorch.backends.cortex_m"
#: Operator -> the positions of its arguments that are dtypes.
_DTYPES: Final = {"cortex_m::quantize_per_tensor.out": 5, "cortex_m::dequantize_per_tensor.out": 5}
#: Operator -> the position of its dilation, which the wheel's kernels in Python lack (PyTorch has none of integers).
_DILATIONS: Final = {"cortex_m::quantized_conv2d.out": 5, "cortex_m::quantized_depthwise_conv2d.out": 5}
#: The numbers of dtypes in the file.
_CODES: Final = {1: torch.int8, 2: torch.int16}
_NAMES: Final = frozenset(text.partition("(")[0] for text in SCHEMAS)


class CortexMRuntime:
    """The kernels by name."""

    def is_available(self) -> Availability:
        """True if ExecuTorch's wheel is installed; it is not loaded."""
        return wheel.availability("ops", "ExecuTorch is", "runtime")

    def kernel(self, operator: str) -> Callable[..., None]:
        """The kernel of an operator. Raises FormatError for one that the library lacks."""
        if operator not in _NAMES:
            raise FormatError(f"the library has no operator {operator}", hint=f"it has {', '.join(sorted(_NAMES))}")
        place, dilation = _DTYPES.get(operator), _DILATIONS.get(operator)
        function = _function(operator)

        def run(*arguments: Any) -> None:
            *given, out = arguments
            if place is not None:
                given[place] = _dtype(given[place])
            if dilation is not None and max(given[dilation]) > 1:
                given[1], given[dilation] = _spread(given[1], given[dilation]), [1, 1]
            out.copy_(function(*given))

        return run


def _spread(weight: torch.Tensor, dilation: Sequence[int]) -> torch.Tensor:
    """A weight (O, H, W, I) with zeros where a dilated one has nothing: the same convolution without dilation."""
    high, wide = ((size - 1) * step + 1 for size, step in zip(weight.shape[1:3], dilation, strict=True))
    spread = weight.new_zeros(weight.shape[0], high, wide, weight.shape[3])
    spread[:, :: dilation[0], :: dilation[1]] = weight
    return spread


def _dtype(code: int) -> torch.dtype:
    if code not in _CODES:
        raise FormatError(f"quantizes to the dtype of number {code}", hint="int8 and int16 are taken")
    return _CODES[code]


@cache
def _function(operator: str) -> Callable[..., torch.Tensor]:
    """The wheel's function that computes the result of an operator."""
    import_module(f"{_LIBRARY}.passes")  # the operators' module needs it, and cannot be imported first
    import_module(f"{_LIBRARY}.ops.operators")
    name = operator.removeprefix("cortex_m::").removesuffix(".out")
    function: Callable[..., torch.Tensor] = getattr(torch.ops.cortex_m, name).default
    return function
