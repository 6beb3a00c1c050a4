"""Weights and biases of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.quantized import known_data

from ..ir.encodings import bias_integers, weight_fault, weight_type
from ..ir.graph import Array, Tensor
from ..ir.types import DataType
from .program import ProgramBuilder


def weight_of(
    b: ProgramBuilder, operand: Operand, order: Sequence[int], shape: Sequence[int], axis: int, least: Array | None
) -> tuple[Tensor, Array | None]:
    """A constant weight in an order of axes and a shape, with scales along `axis`; and these, if it is integers.

    Scales below the `least` become that: see `least_scales`.
    """
    data, quantization = known_data(operand)
    array = data.detach().numpy() if b.is_fixed and quantization is not None else b.numbers(operand)
    array = np.ascontiguousarray(array.reshape(array.shape)).transpose(order).reshape(shape)
    if not b.is_fixed:
        return b.constant(array), None
    assert quantization is not None
    datatype, encoding = weight_type(quantization, axis if quantization.axis is not None else None)
    scales = np.array(encoding.scales)
    if least is not None:
        least = np.max(least.reshape(-1, scales.size), 0) if least.size % scales.size == 0 else least.max()
        raised = np.maximum(scales, least)
        parts = scales / raised
        if (parts < 1).any():
            array = np.rint(array * parts.reshape([-1 if at == axis else 1 for at in range(array.ndim)]))
            array = np.ascontiguousarray(array.astype(datatype.numpy))
            scales, encoding = raised, replace(encoding, scales=tuple(map(float, raised)))
    return b.constant(array, datatype, encoding), scales


#: The least step of input times weight, in steps of the result.
_FINEST: Final = 2.0**-24


def least_scales(b: ProgramBuilder, call: Call, bias: Operand | None, x: Tensor) -> Array | None:
    """The least scales of weights, for each channel or for all, with which the library computes; None of floats.

    It loses the zero point of the result where the steps of input times weight are next to nothing beside the result's,
    as those of weights that are next to nothing are beside 16 bits; and a bias of more than 32 bits of such steps,
    whatever its encoding says.
    """
    _, result = b.result_type(call)
    if not b.is_fixed or x.encoding is None or result is None:
        return None
    least: Array = np.array([_FINEST * result.scale / x.encoding.scale])
    if bias is not None:
        whole = np.abs(b.numbers(bias).astype(np.float64)).reshape(-1) / (_most_steps(x) * x.encoding.scale)
        least = np.maximum(least, whole)
    return least


def _most_steps(x: Tensor) -> int:
    """The largest bias in steps of input times weight: beside eight bits, the library loses some above 2**28."""
    return 2**26 if x.datatype.numpy.itemsize == 1 else 2**31 - 1


def bias_of(b: ProgramBuilder, operand: Operand | None, channels: int, x: Tensor, scales: Array | None) -> Tensor:
    """The bias: zeros where there is none; int32 beside integers, in steps of input times weight."""
    numbers: Array = np.zeros(channels, np.float32) if operand is None else b.numbers(operand)
    if scales is None:
        return b.constant(numbers.astype(np.float32).reshape(channels))
    assert x.encoding is not None
    integers, encoding = bias_integers(numbers.astype(np.float64).reshape(channels), scales * x.encoding.scale)
    return b.constant(integers, DataType.SFIXED32, encoding)


def weights_as_integers(call: Call, name: str = "weight", axis: int | None = None) -> str | None:
    """Beside integers, weights are symmetric int4, int8 or int16, with a scale for each output channel or for all."""
    source: Operand = call[name]
    if not source.is_known or source.integers is None:
        return None
    found: Quantization | None = source.quantization
    fault = weight_fault(found)
    if fault is not None:
        return f"{source.name}: {fault}"
    wanted = (1 if call.get("transposed") else 0) if axis is None else axis
    if found is not None and found.axis not in (None, wanted):
        return f"{source.name} has scales along axis {found.axis}: axis {wanted} is taken"
    return None


def integer_weight(name: str) -> Callable[[Call], str | None]:
    """A layer whose weight is known computes on integers if that is integers, too."""

    def check(call: Call) -> str | None:
        source: Operand = call[name]
        return f"{source.name} is floats" if source.is_known and source.integers is None else None

    return check
