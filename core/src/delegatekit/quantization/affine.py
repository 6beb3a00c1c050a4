"""torchao's affine operators: the blocks of a weight or an input that share a scale, and the operator calls.

Weight-only schemes, and dynamic ones with a scale for each row, sample or group, use them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.fx import GraphModule, Node

from delegatekit_api.schemes import TensorQuantization

from . import torchao
from .graph import evaluate, short_name
from .patterns import ROLES, Layer

#: The types that store values of fewer bits.
_STORAGE: Final = {"int4": torch.int8, "uint4": torch.uint8}

#: Adds a call of an operator to a graph, and returns its value there.
WriteCall: TypeAlias = Callable[[Any, tuple[Any, ...]], Any]


def storage(given: TensorQuantization) -> torch.dtype:
    """The dtype that stores the integers."""
    found: torch.dtype = _STORAGE.get(given.dtype) or getattr(torch, given.dtype)
    return found


# -- weights -----------------------------------------------------------------------------------------------------------


def channel_axis(layer: Layer) -> int:
    """The dimension of a layer's weight with its output channels."""
    assert layer.weight is not None
    return ROLES[short_name(layer.anchor)].channels % int(layer.weight.meta["val"].dim())


def input_axis(layer: Layer) -> int:
    """The dimension of a layer's weight with its input channels."""
    return 1 if channel_axis(layer) == 0 else 0


def block_size(shape: Sequence[int], given: TensorQuantization, channels: int, inputs: int) -> list[int]:
    """The shape of the blocks of a weight that have one scale each, in torchao's form."""
    sizes = [int(size) for size in shape]
    if given.granularity.kind == "channel":
        sizes[given.granularity.axis if given.granularity.axis is not None else channels] = 1
    elif given.granularity.group is not None:
        sizes[channels] = 1
        sizes[inputs] = given.granularity.group
    return sizes


class Weights:
    """The weights of a module as integers, cached."""

    def __init__(self, module: GraphModule) -> None:
        torchao.load("quantization.quant_primitives")  # registers the operators
        self._module = module
        self._known: dict[Any, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def of(self, layer: Layer) -> tuple[list[int], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """The blocks of a layer's weight; and integers, scales and zero points."""
        weight, given = layer.weight, layer.weight_quantization
        assert weight is not None and given is not None
        blocks = block_size(weight.meta["val"].shape, given, channel_axis(layer), input_axis(layer))
        key = (weight, given, tuple(blocks))
        if key not in self._known:
            self._known[key] = self._quantized(weight, given, tuple(blocks))
        return blocks, self._known[key]

    def _quantized(
        self, weight: Node, given: TensorQuantization, blocks: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        primitives = torchao.load("quantization.quant_primitives")
        values = evaluate(self._module, weight).detach()
        dtype, (low, high) = storage(given), given.range
        scale, zero_point = primitives.choose_qparams_affine(
            values,
            primitives.MappingType.SYMMETRIC if given.symmetric else primitives.MappingType.ASYMMETRIC,
            blocks,
            target_dtype=dtype,
            quant_min=low,
            quant_max=high,
            eps=given.eps,
            zero_point_dtype=dtype,
        )
        if zero_point is None:
            zero_point = torch.zeros_like(scale, dtype=dtype)
        held = getattr(torch, given.scale_dtype)
        scale = scale.clamp(max=torch.finfo(held).max).to(held).to(scale.dtype)  # before the weight is rounded with it
        return primitives.quantize_affine(values, blocks, scale, zero_point, dtype, low, high), scale, zero_point


# -- inputs ------------------------------------------------------------------------------------------------------------


def shared_axes(kind: str, rank: int, channels: int) -> range:
    """The dimensions along which all elements of an input share a scale; `channels` counts from the last one."""
    if kind == "token":
        return range(rank + channels, rank + channels + 1)
    return range(1 if kind == "sample" else 0, rank)


def dequantize(
    call: WriteCall, integers: Any, blocks: Sequence[Any], scale: Any, zero_point: Any, given: TensorQuantization
) -> Any:
    """Write the operator that dequantizes integers."""
    arguments = (integers, blocks, scale, zero_point, storage(given), *given.range)
    return call(torch.ops.torchao.dequantize_affine.default, arguments)


def quantize_in_each_call(
    call: WriteCall, value: Any, blocks: Sequence[Any], given: TensorQuantization
) -> tuple[Any, Any, Any]:
    """Write the operators that compute the parameters of a value, and quantize it: integers, scale, zero point."""
    operators, dtype, (low, high) = torch.ops.torchao, storage(given), given.range
    mapping = "SYMMETRIC" if given.symmetric else "ASYMMETRIC"
    arguments = (value, mapping, blocks, dtype, low, high, given.eps, None, dtype)
    chosen = call(operators.choose_qparams_affine.default, arguments)
    scale, zero_point = (call(operator.getitem, (chosen, index)) for index in (0, 1))
    integers = call(operators.quantize_affine.default, (value, blocks, scale, zero_point, dtype, low, high))
    return integers, scale, zero_point
