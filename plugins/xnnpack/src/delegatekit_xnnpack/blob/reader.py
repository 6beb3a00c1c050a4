"""Reads a blob, and makes the checks that the runtime omits."""

from __future__ import annotations

import struct

from delegatekit_api import DelegatePayload, FormatError
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.dataflow import section

from . import schema
from .envelope import HEADER, IDENTIFIERS, MAGIC, MAX_EXTERNS
from .nodes import read_node
from .program import BlobProgram
from .values import Constants, read_values


def parse(blob: bytes | bytearray | memoryview) -> schema.XNNGraph:
    """Read the graph of a blob, ours or stock's, after checking header and structure.

    Raises FormatError for regions outside the blob, a wrong magic or identifier, or a malformed flatbuffer.
    """
    view = memoryview(blob).cast("B")
    try:
        magic, _, start, size, constants, constants_size = HEADER.unpack_from(view)
    except struct.error as error:
        raise FormatError(f"{len(view)} bytes are too few for the header", where="XNNPACK blob") from error
    if magic != MAGIC:
        raise FormatError(f"magic is {magic!r}, not {MAGIC!r}", where="XNNPACK blob, offset 4")
    if start < HEADER.size or start + size > len(view):
        raise FormatError(f"the flatbuffer at {start}, {size} bytes, lies outside", where="XNNPACK blob, offset 10")
    if constants < start + size or constants + constants_size > len(view):
        raise FormatError(
            f"the constant section at {constants}, {constants_size} bytes, lies outside",
            where="XNNPACK blob, offset 18",
        )
    return fb.parse(schema.XNNGraph, view[start : start + size], IDENTIFIERS)


def validate(payload: DelegatePayload) -> BlobProgram:
    """The program of a blob, after checking everything that the runtime does not check, or crashes on.

    Raises FormatError for values without or with two sources; sizes, types and quantization that contradict each other;
    constants and scales whose data is missing or too short; and arguments that differ from the caller's.
    """
    graph = parse(payload.blob)
    arguments = len(payload.inputs) + len(payload.outputs) + len(payload.numbers)
    if graph.num_externs != arguments or arguments > MAX_EXTERNS:
        raise FormatError(f"has {graph.num_externs} arguments, is called with {arguments}", where="XNNPACK blob")
    constants = Constants(graph.constant_data or [], _constant_section(payload.blob), payload.named_data)
    program = program_of(graph, constants)
    program.check_payload(payload)
    return program


def program_of(graph: schema.XNNGraph, constants: Constants) -> BlobProgram:
    """The program of a graph, checked in isolation. Raises FormatError as `validate` does."""
    if graph.xvalues is None or graph.xnodes is None:
        raise FormatError("has no values or no nodes", where="XNNPACK blob")
    values = read_values(graph.xvalues, constants)
    nodes = [read_node(node, values, f"XNNPACK blob, node {index}") for index, node in enumerate(graph.xnodes)]
    program = BlobProgram(values, nodes, frozenset(constants.keys))
    program.check()
    return program


def _constant_section(blob: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(blob).cast("B")
    *_, start, size = HEADER.unpack_from(view)
    return section(view, start, size, "XNNPACK blob, constant section")
