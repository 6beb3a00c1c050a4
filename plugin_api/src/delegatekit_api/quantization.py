"""Reading quantized programs: what the quantize and dequantize operators of a graph say, as plain data.

A quantized program has its numbers as integers between a quantize and a dequantize, and its weights as constants behind
a dequantize. torchao spells that in several ways; these functions read all of them, so that no backend has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ._program import ProgramView, argument, operator_name

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

QUANTIZE: Final = frozenset({"quantized_decomposed.quantize_per_tensor.default"})
#: What makes numbers of integers: the core leaves those that a backend keeps in front of constants.
DEQUANTIZE: Final = frozenset(
    {
        "quantized_decomposed.dequantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_channel.default",
        "torchao.dequantize_affine.default",
    }
)
#: The operators of quantization whose parameters are computed while the program runs.
DYNAMIC: Final = frozenset({"torchao.choose_qparams_affine.default", "torchao.quantize_affine.default"})


@dataclass(frozen=True)
class Quantization:
    """How integers stand for numbers: real = scale * (integer - zero_point).

    `scale` and `zero_point` are numbers for a whole tensor, or tensors: of shape (n,) for one pair for each index along
    `axis`; of shape (rows, columns / group) for one pair for each `group` neighbours along the last axis of a matrix.
    """

    dtype: torch.dtype
    #: The range that the integers are kept in, both ends included.
    minimum: int
    maximum: int
    scale: float | torch.Tensor
    zero_point: int | torch.Tensor
    axis: int | None = None
    group: int | None = None

    @property
    def is_symmetric(self) -> bool:
        """Whether the integer 0 stands for 0 everywhere."""
        zero_point: Any = self.zero_point
        return zero_point == 0 if isinstance(zero_point, int) else not bool(zero_point.any())


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
    name = operator_name(node)
    if name.startswith("quantized_decomposed.") and name.endswith("quantize_per_tensor.default"):
        return Quantization(*_bounds(node, "dtype"), argument(node, "scale"), argument(node, "zero_point"))
    if name == "quantized_decomposed.dequantize_per_channel.default":
        scales = program.constant(argument(node, "scales"))
        if scales is None:
            return None
        zeros = _zero_points(argument(node, "zero_points"), scales, program)
        if zeros is None:
            return None
        return Quantization(*_bounds(node, "dtype"), scales.detach(), zeros, axis=argument(node, "axis"))
    if name == "torchao.dequantize_affine.default":
        return _affine(node, program)
    return None


def _bounds(node: Node, dtype: str) -> tuple[torch.dtype, Any, Any]:
    """The integers' type and the range that they are kept in; `dtype` is the name of its argument."""
    return argument(node, dtype), argument(node, "quant_min"), argument(node, "quant_max")


def _affine(node: Node, program: ProgramView) -> Quantization | None:
    scales = program.constant(argument(node, "scale"))
    if scales is None:
        return None
    zeros = _zero_points(argument(node, "zero_point"), scales, program)
    shape: Sequence[int] = tuple(argument(node, "input").meta["val"].shape)
    block: Sequence[int] = tuple(argument(node, "block_size"))
    dtype, low, high = _bounds(node, "input_dtype")
    if zeros is None or low is None or high is None:
        return None
    bounds = dtype, int(low), int(high)
    if tuple(block) == tuple(shape):
        return Quantization(*bounds, float(scales), int(zeros)) if scales.numel() == 1 else None
    single = [axis for axis, size in enumerate(block) if size == 1 != shape[axis]]
    whole = all(size in (1, full) for size, full in zip(block, shape, strict=True))
    if whole and len(single) == 1:
        return Quantization(*bounds, scales.detach().reshape(-1), zeros.reshape(-1), axis=single[0])
    if len(shape) == 2 and block[0] == 1:
        rows = shape[0], shape[1] // block[1]
        return Quantization(*bounds, scales.detach().reshape(rows), zeros.reshape(rows), group=block[1])
    return None


def _zero_points(given: Node | None, scales: torch.Tensor, program: ProgramView) -> torch.Tensor | None:
    """The zero points, zeros if there are none; None if they are computed."""
    if given is None:
        return scales.detach().new_zeros(scales.shape).int()
    found = program.constant(given)
    return None if found is None else found.detach()


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
