"""Building blocks and constraints that several families of operators share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import torch

from delegatekit_api import Call, Operand
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.quantized import known_data, numbers_of
from delegatekit_toolkit.support import Constraint, Row

from ..ir.program import LowerCall, ProgramBuilder

#: The rows of a family.
Rows: TypeAlias = "tuple[Row[LowerCall], ...]"

_INT32: Final = (1 << 31) - 1


def activation_obstacle(quantization: Quantization | None) -> str | None:
    """The reason why activations do not fit the library, which takes int8 with one scale."""
    if quantization is None:
        return "scales are computed in each call: the library needs fixed scales"
    kind = str(quantization.dtype).removeprefix("torch.")
    if quantization.dtype is not torch.int8 or not quantization.is_per_tensor:
        channels = "" if quantization.is_per_tensor else ", a scale for each channel"
        return f"{kind}{channels}: the library takes int8 with one scale"
    scale = float(quantization.scale)
    return None if 0 < scale < math.inf else f"of scale {scale}: the library needs a finite one above 0"


# -- of all operators ------------------------------------------------------------------------------------------------


def some_elements(call: Call) -> str | None:
    """No tensor is empty."""
    return next((f"{item.name} has no elements, {item.shape}" for item in call.tensors if 0 in item.shape), None)


def integer_operands(rows: Iterable[Row[LowerCall]]) -> Constraint:
    """The constraint of quantized operands; the fact `constants` names those that have constraints of their own."""
    facts: Mapping[str, Mapping[str, object]] = {name: row.facts for row in rows for name in row.operators}

    def check(call: Call) -> str | None:
        """Operands and result are int8, with one scale each; weights are int8."""
        if call.operator not in facts:
            return None  # a conversion
        names: object = facts[call.operator].get("constants", ())
        assert isinstance(names, tuple)
        own = [call[name] for name in names]
        for item in call.operands:
            if item in own:
                continue
            if item.integers is None:
                return f"its operand {item.name} is not quantized"
            reason = activation_obstacle(item.quantization)
            if reason is not None:
                return f"{item.name} is {reason}"
        return None

    return check


# -- weights ---------------------------------------------------------------------------------------------------------


def constant_weight(weight_name: str, bias_name: str, channel_axis: int = 0) -> Constraint:
    """The constraint of weights, whose output channels are along this axis."""

    def check(call: Call) -> str | None:
        """The weight is constant, int8, symmetric, with one scale or one for each output; the bias is constant."""
        weight, bias = call[weight_name], call[bias_name]
        if weight.integers is None or not weight.integers.is_constant:
            return f"its weight {weight.name} is not constant integers"
        found = weight.quantization
        if found is None or found.dtype is not torch.int8 or not found.is_symmetric or found.group is not None:
            return f"its weight {weight.name} is not int8 with zero points of 0, and a scale for each channel or one"
        axis = 1 if call.get("transposed", False) else channel_axis
        if found.axis not in (None, axis):
            return f"its weight {weight.name} has scales along axis {found.axis}"
        if bias is None:
            return None
        if not bias.is_known:
            return f"its bias {bias.name} is computed"
        activation = next(item.quantization for item in call.operands if item not in (weight, bias))
        if activation is None:
            return None  # has a reason of its own
        most = (_numbers(bias).abs() / torch.as_tensor(found.scale) / activation.scale).max()
        # In its own steps, integers of 32 bits may be one more.
        fits = float(most) <= _INT32 + 1
        return None if fits else f"its bias {bias.name} in steps of its sums exceeds 32 bits"

    return check


def _numbers(bias: Operand) -> torch.Tensor:
    data, found = known_data(bias)
    return (data.float() if found is None else numbers_of(data, found)).double().flatten()


def weight_of(operand: Operand) -> torch.Tensor:
    """The integers of a weight."""
    assert operand.integers is not None and operand.integers.constant is not None
    return operand.integers.constant.detach()


def scales_of(operand: Operand, channels: int) -> list[float]:
    """The scale of each output channel of a weight."""
    assert operand.quantization is not None
    scale = operand.quantization.scale
    found = scale.tolist() if isinstance(scale, torch.Tensor) else [float(scale)]
    return list(map(float, found)) * (channels if len(found) == 1 else 1)


def bias_of(b: ProgramBuilder, operand: Operand | None, steps: Iterable[float]) -> torch.Tensor | None:
    """A bias in steps of input times weight, int32 of shape (O,); None if there is none."""
    if operand is None:
        return None
    scaled = _numbers(operand) / torch.tensor(list(steps), dtype=torch.float64)
    return scaled.round().clamp(-_INT32 - 1, _INT32).to(torch.int32)
