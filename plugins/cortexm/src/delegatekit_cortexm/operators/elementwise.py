"""Arithmetic on two tensors, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from delegatekit_api import Call
from delegatekit_api.operators import RuntimeTensor
from delegatekit_api.schemes import QUANTIZE
from delegatekit_toolkit.support import row

from ..ir.numbers import SUM_SHIFT, Scale, fixed_point
from ..ir.program import ProgramBuilder
from .common import Rows

# -- constraints -----------------------------------------------------------------------------------------------------


def sums_in_32_bits(call: Call) -> str | None:
    """The result's scale is not far smaller than those of the operands: sums stay within 32 bits."""
    first, second = (item.quantization for item in (call["self"], call["other"]))
    after = next((reader.quantization for reader in _results(call)), None)
    if first is None or second is None or after is None or not (first.is_per_tensor and second.is_per_tensor):
        return None
    scales = float(first.scale), abs(call["alpha"]) * float(second.scale)
    largest = 2 * max(scales)
    _, shift = fixed_point(largest / (float(after.scale) * 2**SUM_SHIFT))
    spread = 255.0 * sum(scales) * 2**SUM_SHIFT / largest
    if shift <= 0 or spread * 2.0**shift < 2**31:
        return None
    return f"the scale {float(after.scale):g} of its result is too small beside {scales[0]:g} and {scales[1]:g}"


def _results(call: Call) -> Sequence[Call]:
    """The quantizes of a call's result, a clamp between them left out."""
    readers = [user for user in call.users if user.operator in QUANTIZE]
    return readers or [later for user in call.users for later in user.users if later.operator in QUANTIZE]


# -- lowerings -------------------------------------------------------------------------------------------------------


def _pair(b: ProgramBuilder, call: Call) -> tuple[RuntimeTensor, RuntimeTensor]:
    """The operands with the result's shape, except one that has a number for each channel."""
    shape = tuple(call.result.shape)
    found = [b.integers(call[name]) for name in ("self", "other")]
    whole = [item for item in found if item.spec.shape == shape]
    if len(whole) == 1 and len(shape) == 4:
        channels = (1, shape[1], 1, 1)
        other = next(item for item in found if item is not whole[0])
        if math.prod(other.spec.shape) == shape[1] and (1, *other.spec.shape)[-3:] == channels[1:]:
            small = b.channels_last(b.reshaped(other, channels) if other.spec.shape != channels else other)
            image = b.channels_last(whole[0])
            return (image, small) if found[0] is whole[0] else (small, image)
    first, second = b.alike([item if item.spec.shape == shape else _expanded(b, item, shape) for item in found])
    return first, second


def _expanded(b: ProgramBuilder, tensor: RuntimeTensor, shape: Sequence[int]) -> RuntimeTensor:
    return b.own("expand_copy.out", b.as_written(tensor), tuple(shape), False, shape=shape)


def _sum(sign: int) -> Callable[[ProgramBuilder, Call, Scale], RuntimeTensor]:
    def lower(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
        x, y = _pair(b, call)
        left, right = b.scale(call["self"]), b.scale(call["other"])
        factor = sign * call["alpha"]
        scales = left.scale, abs(factor) * right.scale
        largest = 2 * max(scales)
        one, two = (fixed_point(scale / largest) for scale in scales)
        made = fixed_point(largest / (result.scale * 2**SUM_SHIFT))
        return b.call(
            "quantized_add",
            *(x, left.zero_point, *one, y, right.zero_point, -two[0] if factor < 0 else two[0], two[1]),
            *(result.zero_point, *made, result.low, result.high),
            shape=call.result.shape,
            like=x,
        )

    return lower


def _product(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    x, y = _pair(b, call)
    left, right = b.scale(call["self"]), b.scale(call["other"])
    factor = fixed_point(left.scale * right.scale / result.scale)
    arguments = (x, left.zero_point, y, right.zero_point, result.zero_point, *factor)
    return b.bounded(b.call("quantized_mul", *arguments, shape=call.result.shape, like=x), result)


def _quotient(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    shape = tuple(call.result.shape)
    found = [b.integers(call[name]) for name in ("self", "other")]
    x, y = b.alike([item if item.spec.shape == shape else _expanded(b, item, shape) for item in found])
    left, right = b.scale(call["self"]), b.scale(call["other"])
    factor = left.scale / (right.scale * result.scale)
    arguments = (x, left.zero_point, y, right.zero_point, result.zero_point, factor)
    return b.bounded(b.call("quantized_div", *arguments, shape=shape, like=x), result)


def _choice(name: str) -> Callable[[ProgramBuilder, Call, Scale], RuntimeTensor]:
    def lower(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
        """Of integers in the result's scale: rounding keeps order."""
        shape = tuple(call.result.shape)
        found = []
        for operand in (call["self"], call["other"]):
            item = b.rescaled(b.integers(operand), b.scale(operand), result)
            found.append(item if item.spec.shape == shape else _expanded(b, item, shape))
        x, y = b.alike(found)
        return b.call(name, x, y, shape=shape, like=x)

    return lower


ROWS: Rows = (
    row("add.Tensor", _sum(1), sums_in_32_bits),
    row("sub.Tensor", _sum(-1), sums_in_32_bits),
    row("mul.Tensor", _product),
    row("div.Tensor", _quotient, special_values="a quotient by 0 is 0"),
    row("minimum.default", _choice("minimum")),
    row("maximum.default", _choice("maximum")),
)
