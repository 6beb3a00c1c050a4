"""Compiles a partition into the content of the file, step by step."""

from __future__ import annotations

import warnings

from delegatekit_api import PartitionProgram, PreprocessResult, ProgramView

from .blob.writer import serialize
from .ir.graph import Graph
from .operators.program import ProgramBuilder
from .options import VulkanOptions
from .passes import optimize
from .support import TABLE


def compile_partition(partition: PartitionProgram, options: VulkanOptions) -> PreprocessResult:
    """Lower a partition to calls of the runtime's operators, rewrite and serialize them. Raises LoweringError."""
    graph = build_graph(partition.view, options)
    graph = optimize(graph, options)
    for note in dict.fromkeys(graph.notes):
        warnings.warn(f"delegate {partition.index} for Vulkan: {note}", stacklevel=2)
    result = serialize(graph)
    return PreprocessResult(result.blob, named_data=result.named_data, debug_handle_map=result.debug_handles)


def build_graph(program: ProgramView, options: VulkanOptions) -> Graph:
    """Lower a partition's program, call by call.

    Raises LoweringError for an operator that the support table refuses.
    """
    builder = ProgramBuilder(program, options)
    builder.build_with_state(TABLE)
    return builder.graph
