"""Compiles a partition into the content of the file, step by step."""

from __future__ import annotations

import warnings

from delegatekit_api import PartitionProgram, PreprocessResult, ProgramView

from .blob.writer import serialize
from .ir.formats import rounded_groups
from .ir.graph import Graph
from .operators.program import ProgramBuilder, is_inside_chain
from .options import XnnpackOptions
from .passes import optimize
from .support import TABLE


def compile_partition(partition: PartitionProgram, options: XnnpackOptions) -> PreprocessResult:
    """Lower a partition to XNNPACK's graph, rewrite and serialize it. Raises LoweringError."""
    graph = build_graph(partition.view, options)
    optimize(graph, options)
    for shape, group in rounded_groups(graph):
        what = f"delegate {partition.index} for XNNPACK: float32 scales of a weight {shape} in groups of {group}"
        hint = "`delegatekit.quantize`, or weight_scale_dtype=torch.bfloat16 of torchao's configs, rounds them first"
        warnings.warn(
            f"{what} become bfloat16: results differ from eager's by up to 2^-8 of the sums; {hint}", stacklevel=2
        )
    result = serialize(graph)
    return PreprocessResult(result.blob, named_data=result.named_data, debug_handle_map=result.debug_handles)


def build_graph(program: ProgramView, options: XnnpackOptions) -> Graph:
    """Lower a partition's program, call by call.

    Raises LoweringError for an operator that the support table refuses.
    """
    builder = ProgramBuilder(program, options)
    builder.build(TABLE, skip=is_inside_chain)
    return builder.graph
