"""From a partition to what goes into the file, step by step."""

from __future__ import annotations

from delegatekit_api import Call, LoweringError, Operand, PartitionProgram, PreprocessResult, ProgramView, describe_node
from delegatekit_toolkit.quantized import dynamic_quantization_of
from delegatekit_toolkit.sizes import shape_of

from .blob.writer import serialize
from .ir.formats import FLOATS, activation_format
from .ir.graph import Format, Graph
from .operators.program import ProgramBuilder
from .options import XnnpackOptions
from .passes import optimize
from .support import TABLE


def compile_partition(partition: PartitionProgram, options: XnnpackOptions) -> PreprocessResult:
    """Lower a partition to XNNPACK's graph, rewrite that, serialize it. Raises LoweringError."""
    graph = build_graph(partition.view, options)
    optimize(graph, options)
    result = serialize(graph)
    return PreprocessResult(result.blob, named_data=result.named_data, debug_handle_map=result.debug_handles)


def build_graph(view: ProgramView, options: XnnpackOptions = XnnpackOptions()) -> Graph:  # noqa: B008
    """Lower a partition's program, call by call.

    Raises LoweringError for an operator that the support table would not have taken.
    """
    builder = ProgramBuilder(view, options)
    for node in view.inputs:
        operand = view.operand(node)
        builder.define(operand, builder.input(shape_of(operand), _input_format(operand)))
    inner = _inner_calls(view)
    for call in view.calls():
        if call in inner:
            continue
        row = TABLE.get(call.operator)
        if row is None:
            raise LoweringError("XNNPACK has no lowering for this operator", where=call.description)
        builder.lower(call, row)
    for result in view.outputs:
        if result is None:
            raise LoweringError("a delegate returns tensors only", where="outputs of the partition")
        builder.output(builder.stored_tensor(view.operand(result)))
    return builder.graph


def _inner_calls(view: ProgramView) -> set[Call]:
    """What finds parameters in each call is part of one conversion, which the last node of the chain becomes."""
    chains = filter(None, map(dynamic_quantization_of, view.calls()))
    return {Call(node, view) for chain in chains for node in chain.nodes[:-1]}


def _input_format(operand: Operand) -> Format:
    """The format of an input: integers mean what the program's dequantize says of them."""
    datatype = FLOATS.get(operand.dtype)
    if datatype is not None:
        return Format(datatype)
    for user in operand.users:
        quantization = user.quantization
        format = None if quantization is None else activation_format(quantization)
        if format is not None:
            return format
    raise LoweringError("is an input of integers that no call dequantizes", where=describe_node(operand.node))
