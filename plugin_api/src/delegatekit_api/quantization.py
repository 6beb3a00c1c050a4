"""Reading quantized programs: what the quantize and dequantize operators of a graph say, as plain data.

A quantized program has its numbers as integers between a quantize and a dequantize, and its weights as constants behind
a dequantize. torchao spells that in several ways; these functions read all of them, so that no backend has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._nodes import argument, operator_name
from ._program import Call, ProgramView
from ._quantization import DEQUANTIZE, DYNAMIC, QUANTIZE, Quantization, read_quantization

__all__ = [
    "DEQUANTIZE",
    "DYNAMIC",
    "QUANTIZE",
    "DynamicQuantization",
    "Quantization",
    "dynamic_quantization_of",
    "quantization_of",
]

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


@dataclass(frozen=True)
class DynamicQuantization:
    """Numbers rounded to integers whose scales and zero points are found anew in every call."""

    #: The numbers.
    source: Node
    dtype: torch.dtype
    minimum: int
    maximum: int
    #: The dimensions along which all elements share a scale and zero point; those of size 1 are left out. Rows have the
    #: last dimension, samples all but the first, pixels of (N, C, H, W) dimension 1.
    axes: tuple[int, ...]
    #: All nodes from the search for the parameters to the dequantize: they stand or fall together.
    nodes: tuple[Node, ...]


def quantization_of(node: Node, program: ProgramView) -> Quantization | None:
    """What a static quantize or dequantize says; None for other nodes and for parameters that are computed."""
    return read_quantization(Call(node, program))


def _bounds(node: Node, dtype: str) -> tuple[torch.dtype, Any, Any]:
    """The integers' type and the range that they are kept in; `dtype` is the name of its argument."""
    return argument(node, dtype), argument(node, "quant_min"), argument(node, "quant_max")


def dynamic_quantization_of(node: Node) -> DynamicQuantization | None:
    """The chain that ends in this dequantize, from the search for parameters in every call.

    None for other nodes, and for chains that mean something else than numbers rounded and read back.
    """
    if operator_name(node) != "torchao.dequantize_affine.default":
        return None
    quantize = argument(node, "input")
    if getattr(quantize, "op", "") != "call_function" or operator_name(quantize) != "torchao.quantize_affine.default":
        return None
    parameters = [argument(quantize, "scale"), argument(quantize, "zero_point")]
    if [argument(node, "scale"), argument(node, "zero_point")] != parameters or None in parameters:
        return None
    sources = {item.args[0] for item in parameters if operator_name(item) == "getitem"}
    if len(sources) != 1:
        return None
    (choose,) = sources
    if operator_name(choose) != "torchao.choose_qparams_affine.default":
        return None
    source = argument(quantize, "input")
    parts = (choose, quantize, node)
    axes = [_shared_axes(argument(part, "block_size"), source.meta["val"].shape) for part in parts]
    if argument(choose, "input") is not source or axes[0] is None or axes != [axes[0]] * 3:
        return None
    bounds = [_bounds(quantize, "output_dtype"), _bounds(node, "input_dtype")]
    bounds.append((bounds[0][0], argument(choose, "quant_min"), argument(choose, "quant_max")))
    if argument(choose, "mapping_type") != "ASYMMETRIC" or len(set(bounds)) != 1:
        return None
    return DynamicQuantization(source, *bounds[0], axes[0], (choose, *parameters, quantize, node))


def _shared_axes(block: Sequence[Any], shape: Sequence[Any]) -> tuple[int, ...] | None:
    """The dimensions, but for those of size 1, that blocks cover as a whole; None if they cover a part of one.

    A size that changes from call to call is a torch.SymInt in the shape, and a node in the block.
    """
    found = []
    sizes = [size.meta["val"] if hasattr(size, "meta") else size for size in block]
    for axis, (size, full) in enumerate(zip(sizes, shape, strict=True)):
        if isinstance(size, int) and size == 1:
            continue
        both_known = isinstance(size, int) and isinstance(full, int)
        if not (size == full if both_known else str(size) == str(full)):  # == would fix a size that changes
            return None
        found.append(axis)
    return tuple(found)
