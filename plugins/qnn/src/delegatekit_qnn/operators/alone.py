"""The graph of one call alone, whose operands are its inputs: for the library's opinion."""

from __future__ import annotations

from collections.abc import Mapping

from delegatekit_api import Call, Operand
from delegatekit_api.schemes import DEQUANTIZE
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row

from ..ir.encodings import CLAMPS, activation_fault, activation_type, made_as
from ..ir.graph import Graph, Tensor
from ..ir.values import Value
from .program import Lower, ProgramBuilder
from .writer import stored_shape


def build_call(call: Call, table: Mapping[str, Row[Lower]]) -> Graph:
    """The graph. Raises LoweringError."""
    builder = ProgramBuilder(call.program)
    maker: list[Call] = []
    for operand in call.operands:
        producer = operand.producer
        if operand.is_known:
            maker += [producer] if producer is not None else []
        elif producer is not None and producer.operator in DEQUANTIZE and activation_fault(made_as(operand)) is None:
            builder.define(producer["input"], _fixed_input(builder, operand))
            maker.append(producer)
        elif call.operator in CLAMPS and activation_fault(made_as(operand)) is None:
            builder.define(operand, _fixed_input(builder, operand))
        else:
            builder.define(operand, builder.make_input(operand))
    builder.lower([*maker, call], table)
    return builder.graph


def _fixed_input(builder: ProgramBuilder, operand: Operand) -> Value:
    quantization = made_as(operand)
    assert quantization is not None
    datatype, encoding = activation_type(quantization)
    tensor = Tensor(stored_shape(operand.shape), datatype, encoding, role="input", name=f"input_{operand.name}")
    builder.graph.inputs.append(tensor)
    return Value(tensor, identity(operand.rank))
