"""Quantize and dequantize: conversions, weights that stay integers, rows and samples whose scales are found anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api.quantization import dynamic_quantization_of, quantization_of

from .. import operators as ops
from ..arguments import argument
from ..formats import activation_format
from ..graph import DataType, Format, PerRowQuantization
from ..layout import Tensor, channels_last
from ..quantized import is_pointwise
from .context import Lowering, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node


def _quantize(b: ProgramBuilder, node: Node) -> Tensor:
    quantization = quantization_of(node, b.view)
    assert quantization is not None
    format = activation_format(quantization)
    assert format is not None
    return b.map(ops.Convert(format), b.tensor(node.args[0]))  # type: ignore[arg-type]


def _dequantize(b: ProgramBuilder, node: Node) -> Tensor:
    chain = dynamic_quantization_of(node)
    if chain is not None:
        return _in_each_call(b, node, b.tensor(chain.source))
    data = b.weights(node.args[0])
    if data is None:
        return b.map(ops.Convert(Format()), b.tensor(node.args[0]))  # type: ignore[arg-type]
    quantization = quantization_of(node, b.view)
    format = None if quantization is None else activation_format(quantization)
    if format is None:
        data, format = b.filter(node)
    return Tensor.dense(b.constant(data, format=format))


def _in_each_call(b: ProgramBuilder, node: Node, source: Tensor) -> Tensor:
    """Rows, or what convolutions read: samples, or pixels if they are pointwise, with the channels stored last."""
    reader, rank = next(iter(node.users)), len(source.shape)
    if str(reader.target) != "aten.convolution.default":
        order = source.order if source.order[-1] == rank - 1 else tuple(range(rank))  # rows must be stored as rows
        rows = Format(DataType.QDINT8, PerRowQuantization())
        return Tensor(b.emit(ops.Convert(rows), b.stored(source, order)), order)
    pixels = is_pointwise(reader) and not argument(reader, "transposed")
    format = Format(DataType.QDINT8, PerRowQuantization(1 if pixels else rank - 1))
    order = channels_last(rank)
    return Tensor(b.emit(ops.Convert(format), b.stored(source, order)), order)


LOWERINGS: dict[str, Lowering] = {
    "quantized_decomposed.quantize_per_tensor.default": _quantize,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantize,
    "quantized_decomposed.dequantize_per_channel.default": _dequantize,
    "torchao.dequantize_affine.default": _dequantize,
}
