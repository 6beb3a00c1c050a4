"""Quantize and dequantize: conversions, weights that stay integers, rows and samples with scales of each call."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call, LoweringError, Operand
from delegatekit_api.schemes import DEQUANTIZE, DYNAMIC, QUANTIZE
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.layout import identity, to_channels_first
from delegatekit_toolkit.quantized import DynamicQuantization, dynamic_quantization_of
from delegatekit_toolkit.support import Row, row

from ..ir import operators as ops
from ..ir.formats import GROUP_STEP, activation_format, weight_format
from ..ir.layout import Tensor
from ..ir.types import DataType, Format, PerRowQuantization
from .common import LARGEST, SMALLEST, is_pointwise
from .program import Lower, ProgramBuilder

#: The operators of quantized programs other than arithmetic.
QUANTIZATION: Final = QUANTIZE | DEQUANTIZE | DYNAMIC
_CONVOLUTION: Final = "aten.convolution.default"

# -- scales known at lowering time -- ----------------------------------------------------------------------------------


def is_dequantized_constant(call: Call) -> bool:
    """True if a call dequantizes constant integers."""
    return call.operator in DEQUANTIZE and call["input"].is_constant and call.quantization is not None


def _is_of_half_precision(call: Call) -> bool:
    """True if a conversion from or to integers has float16 or bfloat16 on the other side."""
    found = call["input"].dtype, getattr(call.node.meta["val"], "dtype", None)
    return torch.float16 in found or torch.bfloat16 in found


def static_integers(call: Call) -> str | None:
    """Float32 activations as int8, -128 to 127, with one scale known at lowering time; any constants."""
    if _is_of_half_precision(call):
        return "numbers of half precision are quantized: only float32 is"
    if is_dequantized_constant(call):
        return None
    quantization = call.quantization
    if quantization is None:
        return "scales or zero points are computed, or not one for each channel or group"
    if activation_format(quantization) is None:
        what = "for each channel" if quantization.axis is not None else "in all"
        kind = dtype_name(quantization.dtype)
        return (
            f"{kind}, {quantization.minimum} to {quantization.maximum}, {what}: XNNPACK has int8, -128 to 127, in all"
        )
    if call.operator in DEQUANTIZE and _is_read_otherwise(call["input"]):
        return "its integers have another meaning elsewhere: XNNPACK's have one scale and zero point"
    scale = quantization.scale
    assert isinstance(scale, float)
    return None if SMALLEST <= scale <= LARGEST else f"scale = {scale} is not a normal float32 number"


def _is_read_otherwise(integers: Operand) -> bool:
    """True if several scales or zero points are in use for quantizing integers and for reading them as numbers."""
    maker = integers.producer
    made = [maker] if maker is not None and maker.operator in QUANTIZE else []
    first, *others = [item.quantization for item in (*made, *integers.users) if item.operator in QUANTIZE | DEQUANTIZE]
    return any(item != first for item in others)


def _quantize(b: ProgramBuilder, call: Call) -> Tensor:
    quantization = call.quantization
    assert quantization is not None
    format = activation_format(quantization)
    assert format is not None
    return b.map(ops.Convert(format), b.tensor(call["input"]))


def _dequantize(b: ProgramBuilder, call: Call) -> Tensor:
    chain = dynamic_quantization_of(call)
    if chain is not None:
        return _in_each_call(b, call, b.tensor(chain.source))
    data = call["input"].constant
    if data is None:
        return b.map(ops.Convert(Format()), b.tensor(call["input"]))
    quantization = call.quantization
    format = None if quantization is None else activation_format(quantization)
    if format is None:
        data, format = b.filter(call.result)
    return Tensor.dense(b.constant(data, format=format))


# -- scales computed in each call -- --------------------------------------------------------------------------------


def rows_for_products(call: Call) -> str | None:
    """Rows or samples are int8, -128 to 127, with scales computed in each call, and meet constant integers."""
    if _is_of_half_precision(call):
        return "numbers of half precision are quantized: only float32 is"
    if is_dequantized_constant(call):
        return None
    if call.quantization is not None:
        return static_integers(call)
    chain = dynamic_chain(call)
    if chain is None:
        return "scales are found in each call, but not as XNNPACK finds them"
    return _chain_obstacle(chain, readers_of(chain, call))


def dynamic_chain(call: Call) -> DynamicQuantization | None:
    """The chain of calls that quantizes in each call of the program and contains this one."""
    pending, seen = [call], set[Call]()
    while pending:
        found = pending.pop()
        chain = dynamic_quantization_of(found)
        if chain is not None:
            return chain if call.node in chain.nodes else None
        for user in found.users:
            if (user.operator in QUANTIZATION or user.operator == "getitem") and user not in seen:
                seen.add(user)
                pending.append(user)
    return None


def readers_of(chain: DynamicQuantization, call: Call) -> tuple[Call, ...]:
    """The calls that read the result of a chain; `call` is any of the same program."""
    return Call(chain.nodes[-1], call.program).users


def _chain_obstacle(chain: DynamicQuantization, readers: tuple[Call, ...]) -> str | None:
    if (chain.dtype, chain.minimum, chain.maximum) != (torch.int8, -128, 127):
        return f"{chain.dtype}, {chain.minimum} to {chain.maximum}: XNNPACK quantizes rows to int8, -128 to 127"
    if chain.source.dtype != torch.float32:
        return "the rows are not float32"
    for reader in readers:
        what = _reader_obstacle(reader, chain)
        if what is not None:
            return what
        weight: Operand = reader["weight"]
        integers = weight.integers
        quantization = weight.quantization if integers is not None and integers.is_constant else None
        group = None if quantization is None else quantization.group
        if group is not None and group % GROUP_STEP:
            name = reader.node.name
            return f"the weight of {name} has groups of {group}: XNNPACK has groups of multiples of {GROUP_STEP}"
        format = None if quantization is None else weight_format(quantization)
        axis = getattr(format.quantization, "axis", None) if format is not None else None
        transposed = reader.operator == _CONVOLUTION and reader["transposed"]
        if format is None or (axis is not None and axis != (1 if transposed else 0)):
            return f"the weight of {reader.node.name} is not of integers with a scale for each channel or group"
    return None


def _reader_obstacle(reader: Call, chain: DynamicQuantization) -> str | None:
    """The reason why XNNPACK does not multiply operands quantized in each call like this; None if it does."""
    name = reader.operator
    if name not in ("aten.linear.default", _CONVOLUTION) or reader["input"].node is not chain.nodes[-1]:
        return f"{reader.node.name} reads the rows: XNNPACK only multiplies them by a constant weight"
    sizes = chain.source.shape
    if name == _CONVOLUTION:
        groups, transposed = reader["groups"], reader["transposed"]
        if not transposed and 1 < groups == sizes[1]:
            return "XNNPACK has no depthwise convolution of what is quantized in each call"
        pointwise = not transposed and is_pointwise(reader)
        kind, axes = ("pixel", range(1, 2)) if pointwise else ("sample", range(1, len(sizes)))
    else:
        kind, axes = "row", range(len(sizes) - 1, len(sizes))
    wanted = tuple(axis for axis in axes if not (isinstance(sizes[axis], int) and sizes[axis] == 1))
    return None if chain.axes == wanted else f"XNNPACK finds one scale for each {kind} that {reader.node.name} reads"


def _in_each_call(b: ProgramBuilder, call: Call, source: Tensor) -> Tensor:
    """Rows, or inputs of convolutions: samples, or pixels if they are pointwise, with the channels stored last."""
    reader, rank = call.users[0], len(source.shape)
    if reader.operator != _CONVOLUTION:
        order = source.order if source.order[-1] == rank - 1 else identity(rank)  # rows must be contiguous
        rows = Format(DataType.QDINT8, PerRowQuantization(1))
        return Tensor(b.emit(ops.Convert(rows), b.stored(source, order)), order)
    pixels = is_pointwise(reader) and not reader["transposed"]
    format = Format(DataType.QDINT8, PerRowQuantization(1 if pixels else rank - 1))
    order = to_channels_first(rank)
    return Tensor(b.emit(ops.Convert(format), b.stored(source, order)), order)


def _as_part(b: ProgramBuilder, call: Call) -> Tensor:
    raise LoweringError("is lowered with the dequantize at the end of its chain only", where=call.description)


# -- the rows ----------------------------------------------------------------------------------------------------------


def _is_no_activation(call: Call) -> bool:
    """A conversion of activations is worth a delegate: without one, it is four or five operators."""
    return bool(call["input"].is_constant)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("quantized_decomposed.quantize_per_tensor.default", _quantize, static_integers, keep=True, any_type=True),
    row(
        "quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_channel.default",
        _dequantize,
        static_integers,
        keep=True,
        passenger=_is_no_activation,
        any_type=True,
    ),
    row(
        "torchao.choose_qparams_affine.default torchao.quantize_affine.default",
        _as_part,
        rows_for_products,
        keep=True,
        passenger=True,
        any_type=True,
        takes_sizes=True,
    ),
    row(
        "torchao.dequantize_affine.default",
        _dequantize,
        rows_for_products,
        keep=True,
        passenger=_is_no_activation,
        any_type=True,
        takes_sizes=True,
    ),
)
