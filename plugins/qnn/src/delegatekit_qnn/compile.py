"""From partitions to what goes into the file, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delegatekit_api import PartitionProgram, PreprocessResult

from .blob.header import write_blob
from .blob.spec import compile_spec_of, options_of
from .compiler.process import compile_graphs
from .operators.program import ProgramBuilder
from .options import QnnOptions
from .passes import run_passes
from .support import TABLE


def compile_partition(partition: PartitionProgram, options: QnnOptions) -> PreprocessResult:
    """Lower a partition to a QNN graph and have it compiled. Raises LoweringError."""
    (made,) = _compile([partition], options)
    return made


def compile_methods(
    methods: Mapping[str, Sequence[PartitionProgram]], options: QnnOptions
) -> dict[str, list[PreprocessResult]]:
    """All partitions of all methods: those at one position are graphs of one context, if they may be."""
    results: dict[str, list[PreprocessResult]] = {name: [] for name in methods}
    for position in range(max(map(len, methods.values()), default=0)):
        group = {name: items[position] for name, items in methods.items() if position < len(items)}
        together = [list(group.values())] if options.weight_sharing else [[item] for item in group.values()]
        made = [result for items in together for result in _compile(items, options)]
        for name, result in zip(group, made, strict=True):
            results[name].append(result)
    return results


def _compile(partitions: Sequence[PartitionProgram], options: QnnOptions) -> list[PreprocessResult]:
    """Partitions of several methods as graphs of one context: each delegate's blob has all of them."""
    builders = [ProgramBuilder(item.view) for item in partitions]
    for builder in builders:
        builder.build(TABLE)
        run_passes(builder.graph)
    graphs = [builder.graph for builder in builders]
    floats = any(graph.has_floats for graph in graphs)
    spec = options_of(options, floats=floats, shared=len(graphs) > 1)
    blob = write_blob(compile_graphs(graphs, spec))
    return [
        PreprocessResult(blob, compile_specs=(compile_spec_of(spec),), debug_handle_map=builder.handles.mapping)
        for builder in builders
    ]
