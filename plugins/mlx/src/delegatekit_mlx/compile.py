"""Compiles partitions into the content of the file, step by step."""

from __future__ import annotations

from delegatekit_api import PartitionProgram, PreprocessResult

from .blob.container import wrap
from .blob.seal import compile_specs
from .ir.builder import GraphBuilder
from .support import TABLE


def compile_partition(partition: PartitionProgram) -> PreprocessResult:
    """A partition as a graph of MLX. Raises LoweringError."""
    builder = GraphBuilder(partition.view)
    builder.build(TABLE)
    made = builder.finish()
    blob = wrap(made.graph)
    return PreprocessResult(
        blob,
        compile_specs=compile_specs(blob, made.signature),
        debug_handle_map=made.handles.mapping,
        named_data=made.named_data,
    )
