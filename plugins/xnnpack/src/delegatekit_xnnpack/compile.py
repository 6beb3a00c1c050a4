"""From a partition to what goes into the file, step by step."""

from __future__ import annotations

from delegatekit_api import Call, PartitionProgram, PreprocessResult, ProgramView
from delegatekit_toolkit.quantized import dynamic_quantization_of

from .blob.writer import serialize
from .ir.graph import Graph
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


def build_graph(program: ProgramView, options: XnnpackOptions) -> Graph:
    """Lower a partition's program, call by call.

    Raises LoweringError for an operator that the support table would not have taken.
    """
    builder = ProgramBuilder(program, options)
    inner = _inner_calls(program)
    builder.build(TABLE, skip=inner.__contains__)
    return builder.graph


def _inner_calls(program: ProgramView) -> set[Call]:
    """What finds parameters in each call is part of one conversion, which the last call of the chain becomes."""
    chains = filter(None, map(dynamic_quantization_of, program.calls()))
    return {Call(node, program) for chain in chains for node in chain.nodes[:-1]}
