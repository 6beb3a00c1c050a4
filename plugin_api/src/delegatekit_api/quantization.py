"""Reading quantized programs: what the quantize and dequantize operators of a graph say, as plain data.

A quantized program has its numbers as integers between a quantize and a dequantize, and its weights as constants behind
a dequantize. torchao spells that in several ways; these functions read all of them, so that no backend has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ._program import ProgramView, operator_name

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
    """Numbers rounded to integers whose scales and zero points are found anew in every call, one pair for each row."""

    #: The numbers.
    source: Node
    dtype: torch.dtype
    minimum: int
    maximum: int
    #: All nodes from the search for the parameters to the dequantize: they stand or fall together.
    nodes: tuple[Node, ...]


def quantization_of(node: Node, program: ProgramView) -> Quantization | None:
    """What a static quantize or dequantize says; None for other nodes and for parameters that are computed."""
    name = operator_name(node)
    arguments = _arguments(node)
    if name.startswith("quantized_decomposed.") and name.endswith("quantize_per_tensor.default"):
        return Quantization(
            arguments["dtype"],
            arguments["quant_min"],
            arguments["quant_max"],
            arguments["scale"],
            arguments["zero_point"],
        )
    if name == "quantized_decomposed.dequantize_per_channel.default":
        scales = program.constant(arguments["scales"])
        if scales is None:
            return None
        zeros = _zero_points(arguments["zero_points"], scales, program)
        if zeros is None:
            return None
        bounds = arguments["dtype"], arguments["quant_min"], arguments["quant_max"]
        return Quantization(*bounds, scales.detach(), zeros, axis=arguments["axis"])
    if name == "torchao.dequantize_affine.default":
        return _affine(node, arguments, program)
    return None


def _affine(node: Node, arguments: dict[str, Any], program: ProgramView) -> Quantization | None:
    scales = program.constant(arguments["scale"])
    if scales is None:
        return None
    zeros = _zero_points(arguments["zero_point"], scales, program)
    shape: Sequence[int] = tuple(arguments["input"].meta["val"].shape)
    block: Sequence[int] = tuple(arguments["block_size"])
    if zeros is None or arguments["quant_min"] is None or arguments["quant_max"] is None:
        return None
    bounds = arguments["input_dtype"], int(arguments["quant_min"]), int(arguments["quant_max"])
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


def _zero_points(argument: Any, scales: torch.Tensor, program: ProgramView) -> torch.Tensor | None:
    """The zero points, zeros if there are none; None if they are computed."""
    if argument is None:
        return scales.detach().new_zeros(scales.shape).int()
    found = program.constant(argument)
    return None if found is None else found.detach()


def dynamic_quantization_of(node: Node) -> DynamicQuantization | None:
    """The chain that ends in this dequantize: parameters of each row (all of the last axis), found at run time.

    None for other nodes, and for parameters that are shared by more or fewer elements than a row.
    """
    if operator_name(node) != "torchao.dequantize_affine.default":
        return None
    arguments = _arguments(node)
    quantize = arguments["input"]
    if getattr(quantize, "op", "") != "call_function" or operator_name(quantize) != "torchao.quantize_affine.default":
        return None
    inner = _arguments(quantize)
    parameters = [inner["scale"], inner["zero_point"]]
    if [arguments["scale"], arguments["zero_point"]] != parameters or None in parameters:
        return None
    sources = {item.args[0] for item in parameters if operator_name(item) == "getitem"}
    if len(sources) != 1:
        return None
    (choose,) = sources
    if operator_name(choose) != "torchao.choose_qparams_affine.default":
        return None
    chosen = _arguments(choose)
    source = inner["input"]
    shape = source.meta["val"].shape
    row = [1] * (len(shape) - 1) + [shape[-1]]
    blocks = (arguments["block_size"], inner["block_size"], chosen["block_size"])
    if chosen["input"] is not source or not shape or any(list(block) != row for block in blocks):
        return None
    if chosen["mapping_type"] != "ASYMMETRIC" or inner["output_dtype"] != arguments["input_dtype"]:
        return None
    bounds = [(part["quant_min"], part["quant_max"]) for part in (arguments, inner, chosen)]
    if len(set(bounds)) != 1:
        return None
    low, high = bounds[0]
    return DynamicQuantization(source, inner["output_dtype"], low, high, (choose, *parameters, quantize, node))


def _arguments(node: Node) -> dict[str, Any]:
    """Arguments by name, those left out with their defaults."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    found = {}
    for position, parameter in enumerate(schema.arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(parameter.name)
        found[parameter.name] = parameter.default_value if given is None and parameter.has_default_value() else given
    return found
