"""Numbers that hardware cannot represent, int64 in 32 bits above all: constraints, and the effect on results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_api.versions import moved

from .dtypes import dtype_name

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
#: Arguments that are combined with the elements of tensors.
_NUMBERS: Final = (
    *("other", "alpha", "beta", "exponent", "value", "fill_value", "min", "max", "min_val", "max_val"),
    *("negative_slope", "scale", "input_scale", "lambd"),
)
#: The largest float16 number.
_FLOAT16_MAX: Final = 65504.0


def wide_number(tensor: torch.Tensor) -> int | None:
    """An element of int64 that does not fit 32 bits; None if there is none.

    >>> wide_number(torch.tensor([1, 1 << 40]))
    1099511627776
    """
    if tensor.dtype is not torch.int64 or not tensor.numel():
        return None
    low, high = (int(item) for item in tensor.aminmax())
    return low if low < INT32_MIN else high if high > INT32_MAX else None


def narrow_constants(call: Call) -> str | None:
    """Constants of int64 fit 32 bits.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> large = torch.tensor([1, 1 << 40])
    >>> narrow_constants(call_of(lambda x: x + large, torch.ones(2, dtype=torch.int64)))
    'c_lifted_tensor_0 has the number 1099511627776: the device computes in 32 bits'
    """
    for item in call.operands:
        data = item.constant
        number = None if data is None else wide_number(data)
        if number is not None:
            return f"{item.name} has the number {number}: the device computes in 32 bits"
    return None


def numbers_fit(call: Call) -> str | None:
    """A number combined with integers fits 32 bits, one combined with float16 fits float16.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> numbers_fit(call_of(lambda x: x.clamp(max=1 << 40), torch.ones(2, dtype=torch.int64)))
    'max = 1099511627776: the device computes in 32 bits'
    >>> numbers_fit(call_of(lambda x: torch.nn.functional.leaky_relu(x, 2.0**17), torch.ones(2).half()))
    'negative_slope = 131072.0: the device computes in float16, whose largest number is 65504'
    """
    half = any(item.dtype_name == "float16" for item in call.tensors)
    for name in _NUMBERS:
        number = call.get(name)
        if half and isinstance(number, int | float) and _FLOAT16_MAX < abs(number) < math.inf:
            return f"{name} = {number}: the device computes in float16, whose largest number is 65504"
        if isinstance(number, int) and not INT32_MIN <= number <= INT32_MAX:
            return f"{name} = {number}: the device computes in 32 bits"
    return None


def fits_elements(call: Call) -> str | None:
    """A number combined with integers is one of their type.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> fits_elements(call_of(lambda x: x.clamp(max=1 << 40), torch.ones(2, dtype=torch.int64)))
    >>> fits_elements(call_of(lambda x: x.clamp(max=1 << 40), torch.ones(2, dtype=torch.int32)))
    'max = 1099511627776: int32 has no such number'
    >>> fits_elements(call_of(lambda x: x.clamp(max=0.5), torch.ones(2, dtype=torch.int32)))
    'max = 0.5: int32 has no such number'
    """
    dtype = next((item.dtype for item in call.operands), call.results[0].dtype)
    if dtype.is_floating_point or dtype is torch.bool:
        return None
    limits = torch.iinfo(dtype)
    for name in _NUMBERS:
        number = call.get(name)
        # Neither NaN nor infinity is within the limits.
        if isinstance(number, int | float) and not (limits.min <= number <= limits.max and number == int(number)):
            return f"{name} = {number}: {dtype_name(dtype)} has no such number"
    return None


def narrow_product(call: Call) -> str | None:
    """int64 is multiplied by constants and by values that are 0 or 1: other products soon exceed the device's 32 bits.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> narrow_product(call_of(torch.mul, torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)))
    'a product of int64 tensors may leave the 32 bits that the device computes in'
    """
    if call.result.dtype_name != "int64":
        return None
    factors = [call["self"], call.get("other", call["self"])]
    if call.get("exponent", 2) in (0, 1) or sum(map(may_be_large, factors)) < 2:
        return None
    return "a product of int64 tensors may leave the 32 bits that the device computes in"


def may_be_large(factor: Operand | float) -> bool:
    """True if integers may have any value: they are neither constants, nor numbers, nor made of booleans.

    >>> may_be_large(3)
    False
    """
    if not isinstance(factor, Operand) or factor.is_constant or factor.dtype_name == "bool":
        return False
    maker = factor.producer
    return not (maker is not None and maker.operator == "aten._to_copy.default" and maker["self"].dtype_name == "bool")


def narrowed(call: Call) -> str:
    """The special values of a row for int64, which the device narrows; "" for a call that does not compute any.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> narrowed(call_of(torch.neg, torch.ones(2)))
    ''
    """
    computes = any(item.dtype_name == "int64" for item in call.results)
    return "int64 is computed in 32 bits: larger results are not PyTorch's" if computes else ""


def narrow_sum(call: Call) -> str | None:
    """Of integers, what is 0 or 1 is summed: other sums, which are int64 in PyTorch, may leave the device's 32 bits."""
    if call.result.dtype_name != "int64" or not may_be_large(call["self"]):
        return None
    return "a sum of integers may leave the 32 bits that the device computes in"


if not TYPE_CHECKING:
    __getattr__ = moved(__name__)
