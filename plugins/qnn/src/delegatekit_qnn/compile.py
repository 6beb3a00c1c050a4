"""Compiles partitions into the content of the file, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delegatekit_api import PartitionProgram, PreprocessResult
from delegatekit_toolkit.methods import by_position

from .blob.header import write_blob
from .blob.spec import compile_spec_of, options_of
from .compiler.process import compile_graphs
from .operators.program import ProgramBuilder
from .options import QnnOptions
from .passes import run_passes
from .support import TABLE


def compile_partition(partition: PartitionProgram, options: QnnOptions) -> PreprocessResult:
    """Lower a partition to a QNN graph and compile it. Raises LoweringError."""
    (made,) = _compile([partition], options)
    return made


def compile_methods(
    methods: Mapping[str, Sequence[PartitionProgram]], options: QnnOptions
) -> dict[str, list[PreprocessResult]]:
    """All partitions of all methods: those at one position are graphs of one context."""
    return by_position(methods, lambda group: dict(zip(group, _compile(list(group.values()), options), strict=True)))


def _compile(partitions: Sequence[PartitionProgram], options: QnnOptions) -> list[PreprocessResult]:
    """Partitions of several methods as graphs of one context: each delegate's blob has all of them."""
    builders = [ProgramBuilder(item.view) for item in partitions]
    for builder in builders:
        builder.build(TABLE)
        run_passes(builder.graph)
    graphs = [builder.graph for builder in builders]
    floats = any(graph.has_floats for graph in graphs)
    spec = options_of(options, floats=floats, shared=len(graphs) > 1)
    blob = write_blob(compile_graphs(graphs, spec, options.schematics))
    return [
        PreprocessResult(blob, compile_specs=(compile_spec_of(spec),), debug_handle_map=builder.handles.mapping)
        for builder in builders
    ]
