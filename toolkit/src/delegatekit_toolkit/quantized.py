"""Quantized tensors: the values of constant integers, and quantization whose scales are computed in each call.

Parameters that are known at lowering time are read by `Call.quantization` of the plugin API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delegatekit_api import Call, Operand

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    from delegatekit_api.schemes import Quantization

#: Integers that are packed at a time.
_AT_ONCE = 1 << 19

# -- constants ---------------------------------------------------------------------------------------------------------


def real_numbers(
    integers: torch.Tensor,
    scale: float | torch.Tensor,
    zero_point: int | torch.Tensor = 0,
    *,
    axis: int | None = None,
    group: int | None = None,
) -> torch.Tensor:
    """Dequantized values, scale * (integers - zero_point), as float32; the parameters as those of `Quantization`.

    >>> import torch
    >>> real_numbers(torch.tensor([[2, 4], [6, 8]], dtype=torch.int8), torch.tensor([0.5, 0.25]), axis=0).tolist()
    [[1.0, 2.0], [1.5, 2.0]]
    """
    import torch

    def beside(parameter: float | torch.Tensor) -> float | torch.Tensor:
        if not isinstance(parameter, torch.Tensor):
            return parameter
        sizes = [1] * integers.dim()
        if axis is not None:
            sizes[axis] = -1
        return parameter.float().unsqueeze(2) if group is not None else parameter.float().reshape(sizes)

    parts = integers if group is None else integers.reshape(integers.shape[0], -1, group)
    real: torch.Tensor = (parts.float() - beside(zero_point)) * beside(scale)
    return real.reshape(integers.shape)


def numbers_of(integers: torch.Tensor, own: Quantization) -> torch.Tensor:
    """Dequantized values of integers with this quantization, as float32.

    >>> import torch
    >>> from delegatekit_api.schemes import Quantization
    >>> numbers_of(torch.tensor([2, 4], dtype=torch.int8), Quantization(torch.int8, -128, 127, 0.5, 1)).tolist()
    [0.5, 1.5]
    """
    return real_numbers(integers, own.scale, own.zero_point, axis=own.axis, group=own.group)


def known_data(operand: Operand) -> tuple[torch.Tensor, Quantization | None]:
    """The elements of a known operand (`Operand.is_known`), or the integers that it is dequantized from and how.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> weight = torch.ones(2)
    >>> known_data(call_of(lambda x: x + weight, torch.ones(2))["other"])
    (tensor([1., 1.]), None)
    """
    integers = operand.integers
    found = operand.constant if integers is None else integers.constant
    assert found is not None
    return found, operand.quantization if integers is not None else None


def pack_nibbles(integers: torch.Tensor, multiple: int = 2) -> torch.Tensor:
    """Integers -8 to 7 of shape (rows, columns), two in a byte: the first in the low half, 8 added to each.

    Rows are padded with zeros to a multiple of this many columns.

    >>> import torch
    >>> pack_nibbles(torch.tensor([[-8, 7, 0]], dtype=torch.int8)).tolist()
    [[240, 136]]
    """
    import torch

    rows, columns = integers.shape
    width = columns + -columns % multiple
    found = torch.empty(rows, width // 2, dtype=torch.uint8)
    step = max(1, _AT_ONCE // max(1, width))  # rows at a time: all nibbles of a large weight would take much memory
    for start in range(0, rows, step):
        nibbles = (integers[start : start + step].to(torch.int16) + 8).to(torch.uint8)
        nibbles = torch.nn.functional.pad(nibbles, (0, width - columns), value=8)
        found[start : start + step] = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
    return found


# -- scales that are computed in each call -----------------------------------------------------------------------------


@dataclass(frozen=True)
class DynamicQuantization:
    """Numbers rounded to integers whose scales and zero points are computed in every call."""

    #: The numbers.
    source: Operand
    dtype: torch.dtype
    minimum: int
    maximum: int
    #: The dimensions along which all elements share a scale and zero point; those of size 1 are left out. Rows have the
    #: last dimension, samples all but the first, pixels of (N, C, H, W) dimension 1.
    axes: tuple[int, ...]
    #: All nodes from the computation of the parameters to the dequantize: they are lowered together or not at all.
    nodes: tuple[Node, ...]


def dynamic_quantization_of(call: Call) -> DynamicQuantization | None:
    """The chain that ends in this dequantize, from the computation of the parameters in every call.

    None for other calls, and for chains that do not simply quantize and dequantize.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> dynamic_quantization_of(call_of(torch.neg, torch.ones(2))) is None
    True
    """
    if call.operator != "torchao.dequantize_affine.default":
        return None
    quantize = call["input"].producer
    if quantize is None or quantize.operator != "torchao.quantize_affine.default":
        return None
    parameters = (quantize["scale"], quantize["zero_point"])
    if (call["scale"], call["zero_point"]) != parameters or None in parameters:
        return None
    sources = {item.node.args[0] for item in parameters if item.producer and item.producer.operator == "getitem"}
    if len(sources) != 1:
        return None
    choose = Call(sources.pop(), call.program)
    if choose.operator != "torchao.choose_qparams_affine.default":
        return None
    source: Operand = quantize["input"]
    axes = [_shared_axes(part["block_size"], source.shape) for part in (choose, quantize, call)]
    if choose["input"] != source or axes[0] is None or axes != [axes[0]] * 3:
        return None
    bounds = [_bounds(quantize, "output_dtype"), _bounds(call, "input_dtype")]
    bounds.append((bounds[0][0], choose["quant_min"], choose["quant_max"]))
    if choose["mapping_type"] != "ASYMMETRIC" or len(set(bounds)) != 1:
        return None
    nodes = (choose.node, *(item.node for item in parameters), quantize.node, call.node)
    return DynamicQuantization(source, *bounds[0], axes[0], nodes)


def _bounds(call: Call, dtype: str) -> tuple[torch.dtype, Any, Any]:
    """The integers' type and range; `dtype` is the name of its argument."""
    return call[dtype], call["quant_min"], call["quant_max"]


def _shared_axes(block: Sequence[Any], shape: Sequence[Any]) -> tuple[int, ...] | None:
    """The dimensions, except those of size 1, that blocks cover as a whole; None if they cover a part of one."""
    found = []
    for axis, (size, full) in enumerate(zip(block, shape, strict=True)):
        if isinstance(size, int) and size == 1:
            continue
        both_known = isinstance(size, int) and isinstance(full, int)
        if not (size == full if both_known else str(size) == str(full)):  # == would specialize a size that changes
            return None
        found.append(axis)
    return tuple(found)
