"""From a partition to a blob: the toolkit walks over the calls, the rows' functions add steps."""

from __future__ import annotations

from delegatekit_api import PartitionProgram, PreprocessResult

from .blob import Program, write_blob
from .ir import Builder
from .support import TABLE


def compile_partition(partition: PartitionProgram) -> PreprocessResult:
    """The partition as a blob; its constants become named data, keyed by their content."""
    b = Builder(partition.view)
    b.build(TABLE)
    sizes = tuple(tuple(partition.view.operand(node).shape) for node in partition.view.inputs)
    program = Program(len(sizes), tuple(b.constants), tuple(b.steps), tuple(b.outputs), sizes)
    return PreprocessResult(write_blob(program), named_data=b.store.named_data, debug_handle_map=b.handles.mapping)
