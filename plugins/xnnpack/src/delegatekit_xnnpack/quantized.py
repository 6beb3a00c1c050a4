"""What the backend takes of quantized programs: which integers, and what it multiplies them with."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

import torch

from delegatekit_api import ProgramView, argument
from delegatekit_api.quantization import (
    DEQUANTIZE,
    DYNAMIC,
    QUANTIZE,
    DynamicQuantization,
    dynamic_quantization_of,
    quantization_of,
)

from .formats import GROUP_STEP, activation_format, weight_format

if TYPE_CHECKING:
    from torch.fx import Node

_FLOAT32 = torch.finfo(torch.float32)
#: The operators of quantized programs that are no arithmetic.
QUANTIZATION: Final = QUANTIZE | DEQUANTIZE | DYNAMIC


def is_pointwise(node: Node) -> bool:
    """Whether a convolution multiplies each pixel with the same matrix: XNNPACK computes these as products of rows."""
    weight, padding = argument(node, "weight"), argument(node, "padding")
    settings = (*argument(node, "stride"), argument(node, "groups"), *weight.meta["val"].shape[2:])
    return all(setting == 1 for setting in settings) and not any(padding)


def is_dequantized(node: Node, program: ProgramView) -> bool:
    """Whether a node is a constant of integers, as numbers."""
    return str(node.target) in DEQUANTIZE and program.is_constant(node.args[0]) and bool(quantization_of(node, program))


def _is_of_half_precision(node: Node) -> bool:
    """Whether a conversion from or to integers has float16 or bfloat16 on the other side."""
    sides = (node.meta["val"], node.args[0].meta["val"])  # type: ignore[union-attr]
    return any(getattr(side, "dtype", None) in (torch.float16, torch.bfloat16) for side in sides)


def static_integers(node: Node, program: ProgramView) -> str | None:
    """Float32 activations as int8, -128 to 127, with one scale known beforehand; constants as they like."""
    if _is_of_half_precision(node):
        return "numbers of half precision are quantized: only float32 is"
    if is_dequantized(node, program):
        return None
    quantization = quantization_of(node, program)
    if quantization is None:
        return "scales or zero points are computed, or not one for each channel or group"
    if activation_format(quantization) is None:
        what = "for each channel" if quantization.axis is not None else "in all"
        kind = str(quantization.dtype).removeprefix("torch.")
        return (
            f"{kind}, {quantization.minimum} to {quantization.maximum}, {what}: XNNPACK has int8, -128 to 127, in all"
        )
    scale = quantization.scale
    assert isinstance(scale, float)
    return None if _FLOAT32.tiny <= scale <= _FLOAT32.max else f"scale = {scale} is not a normal float32 number"


def dynamic_chain(node: Node) -> DynamicQuantization | None:
    """The chain of nodes that quantizes in each call and has this node in it."""
    pending, seen = [node], set()
    while pending:
        found = pending.pop()
        chain = dynamic_quantization_of(found)
        if chain is not None:
            return chain if node in chain.nodes else None
        for user in found.users:
            inner = str(user.target) in QUANTIZATION or user.target is operator.getitem
            if inner and user not in seen:
                seen.add(user)
                pending.append(user)
    return None


def rows_for_products(node: Node, program: ProgramView) -> str | None:
    """Rows or samples are int8, -128 to 127, with scales found in each call, and meet constant integers."""
    if _is_of_half_precision(node):
        return "numbers of half precision are quantized: only float32 is"
    if is_dequantized(node, program):
        return None
    if quantization_of(node, program) is not None:
        return static_integers(node, program)
    chain = dynamic_chain(node)
    if chain is None:
        return "scales are found in each call, but not as XNNPACK finds them"
    return _chain_obstacle(chain, program)


def _chain_obstacle(chain: DynamicQuantization, program: ProgramView) -> str | None:
    if (chain.dtype, chain.minimum, chain.maximum) != (torch.int8, -128, 127):
        return f"{chain.dtype}, {chain.minimum} to {chain.maximum}: XNNPACK quantizes rows to int8, -128 to 127"
    if chain.source.meta["val"].dtype != torch.float32:
        return "the rows are not float32"
    for reader in chain.nodes[-1].users:
        what = _reader_obstacle(reader, chain)
        if what is not None:
            return what
        weight = argument(reader, "weight")
        quantization = quantization_of(weight, program) if is_dequantized(weight, program) else None
        group = None if quantization is None else quantization.group
        if group is not None and group % GROUP_STEP:
            return f"the weight of {reader.name} has groups of {group}: XNNPACK has groups of multiples of {GROUP_STEP}"
        format = None if quantization is None else weight_format(quantization)
        axis = getattr(format.quantization, "axis", None) if format is not None else None
        transposed = str(reader.target) == _CONVOLUTION and argument(reader, "transposed")
        if format is None or (axis is not None and axis != (1 if transposed else 0)):
            return f"the weight of {reader.name} is not of integers with a scale for each channel or group"
    return None


_CONVOLUTION: Final = "aten.convolution.default"


def _reader_obstacle(reader: Node, chain: DynamicQuantization) -> str | None:
    """Why XNNPACK does not multiply what is quantized in each call so; None if it does."""
    name = str(reader.target)
    if name not in ("aten.linear.default", _CONVOLUTION) or argument(reader, "input") is not chain.nodes[-1]:
        return f"{reader.name} reads the rows: XNNPACK multiplies them with a constant weight, and nothing else"
    sizes = chain.source.meta["val"].shape
    if name == _CONVOLUTION:
        groups = argument(reader, "groups")
        if not argument(reader, "transposed") and 1 < groups == sizes[1]:
            return "XNNPACK has no depthwise convolution of what is quantized in each call"
        pointwise = not argument(reader, "transposed") and is_pointwise(reader)
        kind, axes = ("pixel", range(1, 2)) if pointwise else ("sample", range(1, len(sizes)))
    else:
        kind, axes = "row", range(len(sizes) - 1, len(sizes))
    wanted = tuple(axis for axis in axes if not (isinstance(sizes[axis], int) and sizes[axis] == 1))
    return None if chain.axes == wanted else f"XNNPACK finds one scale for each {kind} that {reader.name} reads"
