"""Compiles one partition to a delegate: its program as TOSA, converted to a VGF file."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Final

from delegatekit_api import CompileSpec, LoweringError, PartitionProgram, PreprocessResult
from delegatekit_toolkit import tosa

from .blob.container import unpack
from .blob.spirv import read_graph
from .compiler import convert
from .ir.builder import VgfBuilder
from .options import VgfOptions
from .support import TABLE, VgfPartitioner

#: Compile specs of stock ExecuTorch's backend, which its runtime does not read: the profiles, and the blob's format.
_PROFILES: Final = CompileSpec("tosa_spec", b"TOSA-1.0+FP+INT+int16")
_FORMAT: Final = CompileSpec("output_format", b"vgf")


def compile_partition(partition: PartitionProgram, options: VgfOptions) -> PreprocessResult:
    """Lower and convert a partition.

    Debug ids are the names of the graph's tensors as `blob_operators` tells them. Raises LoweringError if the converter
    refuses the program, or makes a file with other inputs and outputs.
    """
    builder = VgfBuilder(partition.view)
    builder.build(TABLE, VgfPartitioner(options).units(partition.view))
    graph, blob, made = _converted(builder, options)
    if _signature(made) != _signature(graph):
        builder.keep_inputs_and_outputs()
        graph, blob, made = _converted(builder, options)
        if _signature(made) != _signature(graph):
            what = f"the file computes {_signature(made)}, not {_signature(graph)}"
            raise LoweringError(what, where="model converter")
    flags = tuple(
        CompileSpec("compile_flags", " ".join(options.converter_flags).encode()) for _ in options.converter_flags[:1]
    )
    return PreprocessResult(blob, (_PROFILES, *flags, _FORMAT), debug_handle_map=_handles(graph, made, builder.handles))


def _converted(builder: VgfBuilder, options: VgfOptions) -> tuple[tosa.Graph, bytes, tosa.Graph]:
    """The graph, the file that is made of it, and the graph in the file."""
    graph = builder.finish()
    blob = convert(tosa.write(graph), options.converter_flags)
    return graph, blob, read_graph(unpack(blob))


def _signature(graph: tosa.Graph) -> str:
    """The types of inputs and outputs."""
    given, made = (
        ", ".join(f"{tensor.dtype.name}{list(tensor.shape)}" for tensor in tensors)
        for tensors in (graph.inputs, graph.outputs)
    )
    return f"({given}) -> ({made})"


def _handles(
    graph: tosa.Graph, made: tosa.Graph, handles: Mapping[int | str, tuple[int, ...]]
) -> dict[int | str, tuple[int, ...]]:
    """The debug handles of the file's operators: names are lost, so those that follow each other are found again."""
    wanted, known = ([*map(_key, item.operations)] for item in (graph, made))
    found: dict[int | str, tuple[int, ...]] = {}
    for match in SequenceMatcher(None, wanted, known, autojunk=False).get_matching_blocks():
        for offset in range(match.size):
            before, after = graph.operations[match.a + offset], made.operations[match.b + offset]
            if before.output.name in handles:
                found[after.output.name] = handles[before.output.name]
    return found


def _key(operation: tosa.Operation) -> tuple[str, tuple[int, ...], int]:
    return operation.operator.name, operation.output.shape, operation.output.dtype
