"""Compiles a partition into the content of the file, step by step."""

from __future__ import annotations

from delegatekit_api import PartitionProgram, PreprocessResult, ProgramView

from .blob.writer import serialize
from .ir.graph import Graph
from .operators.program import ProgramBuilder, is_inside_chain
from .options import XnnpackOptions
from .passes import optimize
from .support import TABLE


def compile_partition(partition: PartitionProgram, options: XnnpackOptions) -> PreprocessResult:
    """Lower a partition to XNNPACK's graph, rewrite and serialize it. Raises LoweringError."""
    graph = build_graph(partition.view, options)
    optimize(graph, options)
    result = serialize(graph)
    return PreprocessResult(result.blob, named_data=result.named_data, debug_handle_map=result.debug_handles)


def build_graph(program: ProgramView, options: XnnpackOptions) -> Graph:
    """Lower a partition's program, call by call.

    Raises LoweringError for an operator that the support table refuses.
    """
    builder = ProgramBuilder(program, options)
    builder.build(TABLE, skip=is_inside_chain)
    return builder.graph
