"""Constraints of all operators, and those shared by several families."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import torch

from delegatekit_api import Call, Operand
from delegatekit_api.quantization import Quantization
from delegatekit_toolkit.support import Constraint, Row

from ..ir.program import LowerCall
from ..targets import COMMON_RANK, MAX_AXIS, MAX_RANK, Target

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

    `constants` names operands that are constant; with `float_constants` any operand may be a constant of any type.
    """
    facts: Mapping[str, Mapping[str, object]] = {name: row.facts for row in rows for name in row.operators}

    def check(call: Call) -> str | None:
        own = [call[name] for name in constants_of(facts[call.operator])]
        for item in call.operands:
            if item in own or item.dtype is torch.bool:
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


def constants_of(facts: Mapping[str, object]) -> tuple[str, ...]:
    """The names of the operands that have constraints of their own, by the facts of an operator's row."""
    found = facts.get("constants", ())
    assert isinstance(found, tuple)
    return found


# -- of some ---------------------------------------------------------------------------------------------------------


def needs(target: Target, what: str) -> tuple[Constraint, ...]:
    """The constraint of features of the U85 alone; none for a U85. `what` describes it in words."""
    reason = target.lacks(what)

    def check(call: Call) -> str | None:
        """Not supported."""
        return reason

    return () if reason is None else (check,)


def narrow(target: Target, what: str) -> tuple[Constraint, ...]:
    """The constraint of int16 features of the U85 alone; none for a U85. `what` describes it in words."""
    reason = target.lacks(what)

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
