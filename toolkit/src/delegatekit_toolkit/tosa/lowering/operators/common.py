"""Building blocks and constraints that several families of operators share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, Operand
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.support import Constraint, Row
from delegatekit_toolkit.tosa import Add, DType, Maximum, Minimum, Mul, Tensor
from delegatekit_toolkit.tosa.types import Array

from ..device import Device
from ..limits import COMMON_RANK, MAX_AXIS, MAX_RANK
from ..program import LowerCall, ProgramBuilder
from ..values import Result, Scale, Value

#: The rows of a family.
Rows: TypeAlias = "tuple[Row[LowerCall], ...]"

#: The integers of activations: their type and range.
_INT8: Final = (torch.int8, -128, 127)
_INT16: Final = (torch.int16, -(1 << 15), (1 << 15) - 1)


def activation_obstacle(quantization: Quantization | None) -> str | None:
    """The reason why activations do not fit the NPU, which requires int8, or symmetric int16, with one scale."""
    if quantization is None:
        return "scales are computed in each call: the NPU needs fixed scales"
    found = (quantization.dtype, quantization.minimum, quantization.maximum)
    whole = quantization.is_per_tensor
    if whole and found == _INT16 and not quantization.is_symmetric:
        return f"int16 with the zero point {quantization.zero_point}: the NPU needs 0"
    if whole and found in (_INT8, _INT16):
        scale = float(quantization.scale)
        return None if 0 < scale < math.inf else f"of scale {scale}: the NPU needs a finite one above 0"
    kind = str(quantization.dtype).removeprefix("torch.")
    channels = "" if whole else ", a scale for each channel"
    wanted = f"int8, {_INT8[1]} to {_INT8[2]}, or int16, {_INT16[1]} to {_INT16[2]}"
    return f"{kind}, {found[1]} to {found[2]}{channels}: the NPU needs {wanted}, with one scale"


# -- of all operators ------------------------------------------------------------------------------------------------


def static_sizes(call: Call) -> str | None:
    """No size changes from call to call."""
    if not call.is_dynamic:
        return None
    changing = (f"{item.name} {item.shape}" for item in call.tensors if item.is_dynamic)
    found = next(changing, None) or call.sizes[0].name
    return f"{found} has a size that changes from call to call: the NPU needs fixed sizes"


def few_axes(call: Call) -> str | None:
    """At most 6 axes, each of 1 to 65536 elements."""
    for item in call.tensors:
        if item.rank > MAX_RANK:
            return f"{item.name}: it has {item.rank} axes, more than {MAX_RANK}"
        if 0 in item.shape:
            return f"{item.name}: it has no elements, {item.shape}"
        if max(item.shape, default=1) > MAX_AXIS:
            return f"{item.name}: an axis of {item.shape} has more than {MAX_AXIS} elements"
    return None


def integer_operands(rows: Iterable[Row[LowerCall]]) -> Constraint:
    """The constraint of quantized operands; facts of the rows name operands that have constraints of their own.

    `constants` names operands that are constant, `masks` booleans; with `float_constants` any operand may be a constant
    of any type.
    """
    facts: Mapping[str, Mapping[str, object]] = {name: row.facts for row in rows for name in row.operators}

    def check(call: Call) -> str | None:
        own = [call[name] for fact in ("constants", "masks") for name in names_of(facts[call.operator], fact)]
        for item in call.operands:
            if item in own:
                continue
            if facts[call.operator].get("float_constants") and item.is_constant:
                continue
            if item.integers is None:
                return f"its operand {item.name} is not quantized"
            reason = activation_obstacle(item.quantization)
            if reason is not None:
                return f"{item.name} is {reason}"
        return None

    types = "Operands and result are int8, or all int16 with zero points of 0; one scale each"
    check.__doc__ = f"{types} (weights: int8, per channel)."
    return check


def names_of(facts: Mapping[str, object], fact: str) -> tuple[str, ...]:
    """The names of the operands that a fact of an operator's row lists."""
    found = facts.get(fact, ())
    assert isinstance(found, tuple)
    return found


# -- of some ---------------------------------------------------------------------------------------------------------


def needs(device: Device, what: str) -> tuple[Constraint, ...]:
    """The constraint of a feature that narrow devices lack; none for others. `what` describes it in words."""
    reason = device.lacks(what)

    def check(call: Call) -> str | None:
        """Not supported."""
        return reason

    return () if reason is None else (check,)


def narrow(device: Device, what: str) -> tuple[Constraint, ...]:
    """The constraint of an int16 feature that narrow devices lack; none for others. `what` describes it in words."""
    reason = device.lacks(what)

    def check(call: Call) -> str | None:
        """int8, not int16."""
        return reason if is_wide(call) else None

    return () if reason is None else (check,)


def is_wide(call: Call) -> bool:
    """True if an operand is int16."""
    found = (item.quantization for item in call.operands)
    return any(item is not None and item.dtype is torch.int16 for item in found)


def eight_bits(call: Call) -> str | None:
    """int8, not int16."""
    return "for int16 the NPU has tables of smooth functions only" if is_wide(call) else None


def common_rank(call: Call) -> str | None:
    """Quantized numbers, or booleans; at most 4 axes if operands have several shapes."""
    shape = call.result.shape
    # (Constants need not be repeated.)
    same = all(item.shape == shape for item in call.operands if not item.is_constant)
    if same or len(shape) <= COMMON_RANK:
        return None
    return f"operands of several shapes make one of {len(shape)} axes: {COMMON_RANK} is the maximum"


def constant_parameters(*names: str) -> Constraint:
    """The constraint that parameters, if there are any, are constant."""

    def check(call: Call) -> str | None:
        """Parameters, if there are any, are constant."""
        for item in map(call.__getitem__, names):
            if item is not None and not is_constant(item):
                return f"its parameter {item.name} is computed"
        return None

    return check


def narrow_indices(name: str) -> Constraint:
    """The constraint of the indices in an argument."""

    def check(call: Call) -> str | None:
        """Indices are int32, or constant."""
        indices: Operand = call[name]
        if indices.is_constant or indices.dtype is torch.int32:
            return None
        hint = "give the program int32, or convert them (`.to(torch.int32)`)"
        return f"its indices are {indices.dtype_name}, the NPU reads int32: {hint}"

    return check


def is_constant(operand: Operand) -> bool:
    """True if an operand is a constant, or dequantized from constant integers."""
    integers = operand.integers
    return operand.is_constant if integers is None else integers.is_constant


def size_obstacle(kernel: Sequence[int], most: tuple[int, int], what: str) -> str | None:
    """The reason for refusing a kernel or window: `most` is its largest height, and number of elements."""
    height = kernel[0] if len(kernel) > 1 else 1
    if height <= most[0] and math.prod(kernel) <= most[1]:
        return None
    return f"a {what} of {'x'.join(map(str, kernel))}: the maximum is {most[0]} high and {most[1]} elements"


def constant_weight(weight_name: str, bias_name: str, *, outputs_first: bool = True) -> Constraint:
    """The constraint of weights: with `outputs_first` their first axis is that of the output channels, else the second.

    For a transposed convolution it is the second.
    """

    def check(call: Call) -> str | None:
        weight, bias = call[weight_name], call[bias_name]
        if weight.integers is None or not weight.integers.is_constant:
            return f"its weight {weight.name} is not constant integers"
        if weight.rank < 2:
            return f"its weight {weight.name} is a vector"
        found = weight.quantization
        if found is None or found.dtype is not torch.int8 or not found.is_symmetric or found.group is not None:
            return f"its weight {weight.name} is not int8 with zero points of 0, and a scale for each channel or one"
        transposed = call.get("transposed", False)
        if transposed and call["groups"] > 1 and found.axis is not None:
            return "a grouped transposed convolution has a scale for each channel of its weight"
        if found.axis not in (None, 0 if outputs_first and not transposed else 1):
            return f"its weight {weight.name} has scales along axis {found.axis}"
        return None if bias is None or is_constant(bias) else f"its bias {bias.name} is computed"

    weights = "The weight is constant, int8, symmetric, with a scale for each output channel or one"
    check.__doc__ = f"{weights}; the bias is constant."
    return check


def weight_of(b: ProgramBuilder, operand: Operand, channels: int) -> tuple[Array, Array]:
    """The integers of a weight and the scale of each of its `channels` output channels."""
    assert operand.integers is not None and operand.integers.constant is not None
    scale = b.quantization(operand).scale
    scales = scale.double().numpy() if isinstance(scale, torch.Tensor) else np.array([float(scale)])
    return operand.integers.constant.numpy(), np.broadcast_to(scales, (channels,))


#: 1, for signed factors of 16 bits.
UNIT = (1 << 15) - 1


def sloped(b: ProgramBuilder, tensor: Tensor, scale: Scale, slopes: Array, result: Result) -> Tensor:
    """The positive part, and the negative one times slopes, of the tensor's rank."""
    largest = max(float(np.abs(slopes).max()), 1.0)
    factors = b.graph.constant(np.rint(slopes / largest * UNIT), DType.INT32, f"{b.name}.slopes")
    shape, zero = tensor.shape, b.single(0, tensor.shape)
    side = b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
    positive = b.emit(Maximum(), (side, zero), shape, DType.INT32, "positive")
    negative = b.emit(Minimum(), (side, zero), shape, DType.INT32, "negative")
    sloped = b.emit(Mul(), (negative, factors, b.number(0)), shape, DType.INT32, "sloped")
    whole = b.rescaled(positive, [UNIT / largest], name="positive")
    sums = b.emit(Add(), (whole, sloped), shape, DType.INT32, "sum")
    return b.stored_as(sums, [scale.scale * largest / UNIT], result)


def ranked(b: ProgramBuilder, value: Value, rank: int) -> Value:
    """The value with further axes of size 1 before its own."""
    missing = rank - len(value.order)
    if not missing:
        return value
    tensor = b.reshaped(value.tensor, (*[1] * missing, *value.tensor.shape))
    return Value(tensor, (*range(missing), *(axis + missing for axis in value.order)))


def rows_of(b: ProgramBuilder, value: Value, dim: int) -> tuple[Tensor, tuple[int, ...]]:
    """The value as a matrix whose rows are along one axis, and the resulting order of its axes."""
    axis = dim % len(value.order)
    order = (*(other for other in value.order if other != axis), axis)
    tensor = b.stored(value, order)
    return b.reshaped(tensor, (math.prod(tensor.shape[:-1]), tensor.shape[-1])), order
