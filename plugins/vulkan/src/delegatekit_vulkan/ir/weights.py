"""Weights that are kept as integers, in the runtime's order and with its additional constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from delegatekit_toolkit.quantized import numbers_of, pack_nibbles

from .graph import HALF_MAX, Argument, Node, Tensor, constant
from .stock import INT8_CONVOLUTION, INT8_DEPTHWISE, INT8_POINTWISE, INT8_TRANSPOSED

#: Constants of 4 bits have rows of multiples of this many elements.
_NIBBLE_STEP: Final = 8
#: The smallest normal float16 number.
_HALF_NORMAL: Final = 2.0**-14


def to_numbers(tensor: Tensor) -> None:
    """Keep a constant as numbers from now on, if it is kept as integers."""
    own, data = tensor.integers, tensor.data
    if own is None or data is None:
        return
    tensor.data = constant(numbers_of(data, own).to(tensor.staging.torch), half=tensor.datatype != tensor.staging).data
    tensor.integers = None


def aligned(data: torch.Tensor, step: int = 4) -> torch.Tensor:
    """The last axis padded with zeros to a multiple of `step`: shaders read four elements at once.

    >>> aligned(torch.ones(5)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    missing = -data.shape[-1] % step
    return torch.nn.functional.pad(data, (0, missing)) if missing else data


def aligned_bias(bias: Argument) -> Tensor | None:
    """A constant bias as numbers, in its type on the device, padded likewise; None if there is none."""
    if not isinstance(bias, Tensor):
        return None
    to_numbers(bias)
    assert bias.data is not None
    return constant(aligned(bias.data))


def holds(scales: torch.Tensor, *, half: bool) -> bool:
    """True if the device, which with `half` keeps numbers as float16, loses no digits of these scales."""
    return not half or bool(((scales >= _HALF_NORMAL) & (scales <= HALF_MAX)).all())


# -- 8 bits ------------------------------------------------------------------------------------------------------------


def channel_weights(weight: Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Integers and a scale for each index along an axis; None unless the weight is kept as symmetric int8 like this."""
    own, data = weight.integers, weight.data
    if own is None or data is None or data.dtype is not torch.int8 or not own.is_symmetric or own.group is not None:
        return None
    if own.axis not in (None, axis):
        return None
    scale = own.scale
    if not isinstance(scale, torch.Tensor):
        scale = torch.tensor([scale])
    return data, scale.detach().float().expand(data.shape[axis])


@dataclass(frozen=True, eq=False)
class IntegerProduct:
    """An operator of the runtime on integers, with its constants."""

    operator: str
    weight: torch.Tensor
    #: The sum of all integers that contribute to one channel of the result.
    sums: torch.Tensor
    scales: torch.Tensor
    #: The arguments between bias and activation.
    settings: tuple[Argument, ...] = ()


def integer_convolution(node: Node) -> IntegerProduct | None:
    """The integer operator for a convolution (of `aten.convolution`'s arguments); None if the runtime has none.

    Lowering has split groups other than single channels or whole texels into float convolutions.
    """
    weight = node.arguments[1]
    stride, padding, dilation, transposed, output_padding, groups = node.arguments[3:9]
    assert isinstance(weight, Tensor) and isinstance(groups, int)
    found = channel_weights(weight, 1 if transposed else 0)
    if found is None:
        return None
    integers, scales = found
    outputs, inputs, *kernel = integers.transpose(0, 1).shape if transposed else integers.shape
    settings: tuple[Argument, ...] = (tuple(kernel), stride, padding, dilation, groups)
    if transposed:
        # Outputs, kernel, inputs.
        rows = integers.permute(1, 2, 3, 0).reshape(outputs, -1)
        settings = (*settings[:3], output_padding, *settings[3:])
        return IntegerProduct(INT8_TRANSPOSED, aligned(rows), rows.sum(1), scales, settings)
    if groups == outputs and inputs == 1 and groups > 1:
        if outputs % 4:
            return None
        window = integers.permute(2, 3, 1, 0).reshape(*kernel, outputs)
        return IntegerProduct(INT8_DEPTHWISE, window, window.sum((0, 1)), scales, settings)
    rows = integers.permute(0, 2, 3, 1).reshape(outputs, -1)
    plain = math.prod(kernel) == 1 and groups == 1 and (stride, padding, dilation) == ((1, 1), (0, 0), (1, 1))
    name = INT8_POINTWISE if plain else INT8_CONVOLUTION
    return IntegerProduct(name, aligned(rows), rows.sum(1), scales, settings)


# -- 4 bits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupedWeight:
    """A matrix (rows, columns) of 4 bits, two in a byte, with a scale for each group of neighbors in a row."""

    packed: torch.Tensor
    #: Of shape (groups, rows), and the sums of each group's integers likewise, padded to a multiple of 8.
    scales: torch.Tensor
    sums: torch.Tensor
    group: int


def grouped_weight(weight: Tensor) -> GroupedWeight | None:
    """The 4-bit form; None unless it is a matrix of integers -8 to 7, symmetric, with scales for groups or rows."""
    own, data = weight.integers, weight.data
    if own is None or data is None or data.dtype is not torch.int8 or data.dim() != 2 or not own.is_symmetric:
        return None
    if own.minimum < -8 or own.maximum > 7 or not isinstance(own.scale, torch.Tensor):
        return None
    rows, columns = data.shape
    group = columns if own.group is None else own.group
    if own.group is None and own.axis != 0:
        return None
    if columns % 4 or group % 4:
        return None
    scales = own.scale.detach().float().reshape(rows, -1).t()
    sums = data.reshape(rows, -1, group).sum(2).t()
    return GroupedWeight(pack_nibbles(data, _NIBBLE_STEP), scales, aligned(sums.to(torch.int32), 8), group)
