"""Quantize and dequantize: conversions, weights that stay integers, rows whose scales are found in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api.quantization import dynamic_quantization_of, quantization_of

from .. import operators as ops
from ..formats import activation_format
from ..graph import DataType, Format, PerRowQuantization
from ..layout import Tensor
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
        rows = Format(DataType.QDINT8, PerRowQuantization())
        return b.map(ops.Convert(rows), b.tensor(chain.source))
    data = b.weights(node.args[0])
    if data is None:
        return b.map(ops.Convert(Format()), b.tensor(node.args[0]))  # type: ignore[arg-type]
    weight, format = b.filter(node)
    return Tensor.dense(b.constant(weight, format=format))


LOWERINGS: dict[str, Lowering] = {
    "quantized_decomposed.quantize_per_tensor.default": _quantize,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantize,
    "quantized_decomposed.dequantize_per_channel.default": _dequantize,
    "torchao.dequantize_affine.default": _dequantize,
}
