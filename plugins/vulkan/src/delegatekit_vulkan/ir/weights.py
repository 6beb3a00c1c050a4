"""Weights that are kept as integers, in the runtime's order and with its additional constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from delegatekit_toolkit.quantized import numbers_of, pack_nibbles
from delegatekit_toolkit.spilling import spilled_like

from .graph import HALF_MAX, Argument, Node, Tensor, constant
from .stock import INT8_CONVOLUTION, INT8_DEPTHWISE, INT8_POINTWISE, INT8_TRANSPOSED

if TYPE_CHECKING:
    from delegatekit_api.schemes import Quantization

#: Constants of 4 bits have rows of multiples of this many elements.
_NIBBLE_STEP: Final = 8
#: Elements that are added up at a time.
_AT_ONCE: Final = 1 << 18
#: The smallest normal float16 number.
_HALF_NORMAL: Final = 2.0**-14


def to_numbers(tensor: Tensor) -> None:
    """Keep a constant as numbers from now on, if it is kept as integers."""
    own, data = tensor.integers, tensor.data
    if own is None or data is None:
        return
    made = constant(numbers_of(data, own).to(tensor.staging.torch), half=tensor.datatype != tensor.staging).data
    assert made is not None
    tensor.data = spilled_like(data, made)
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


def group_of(own: Quantization, shape: tuple[int, ...]) -> int | None:
    """The size of the groups in which integers (rows, columns) are read as 4 bits; None if they are not."""
    if len(shape) != 2 or not own.is_symmetric or own.minimum < -8 or own.maximum > 7:
        return None
    if not isinstance(own.scale, torch.Tensor) or (own.group is None and own.axis != 0):
        return None
    group = shape[1] if own.group is None else own.group
    return None if shape[1] % 4 or group % 4 else group


def integer_bytes(own: Quantization, shape: tuple[int, ...], *, fixed: bool, half: bool) -> int | None:
    """Bytes of a linear layer's weight (rows, columns) that it reads as integers; None if it reads numbers.

    `fixed` is whether the layer has the same sizes in every call.
    """
    if own.dtype is not torch.int8 or len(shape) != 2 or not holds(torch.as_tensor(own.scale).detach(), half=half):
        return None
    if fixed and group_of(own, shape) is not None:
        return shape[0] * (-(-shape[1] // _NIBBLE_STEP) * _NIBBLE_STEP // 2)
    return math.prod(shape) if own.is_symmetric and own.group is None and own.axis in (None, 0) else None


def grouped_weight(weight: Tensor) -> GroupedWeight | None:
    """The 4-bit form; None unless it is a matrix of integers -8 to 7, symmetric, with scales for groups or rows."""
    own, data = weight.integers, weight.data
    if own is None or data is None or data.dtype is not torch.int8:
        return None
    group = group_of(own, tuple(data.shape))
    if group is None:
        return None
    rows = data.shape[0]
    assert isinstance(own.scale, torch.Tensor)
    scales = own.scale.detach().float().reshape(rows, -1).t()
    sums = torch.empty(rows, data.shape[1] // group, dtype=torch.int32)
    step = max(1, _AT_ONCE // data.shape[1])  # PyTorch adds up copies as int64: of a few rows at a time
    for start in range(0, rows, step):
        part = data[start : start + step]
        sums[start : start + step] = part.reshape(len(part), -1, group).sum(2)
    packed = pack_nibbles(data, _NIBBLE_STEP)
    parts = (packed, scales, aligned(sums.t(), 8))
    packed, scales, sums = (spilled_like(data, item) for item in parts)
    return GroupedWeight(packed, scales, sums, group)
