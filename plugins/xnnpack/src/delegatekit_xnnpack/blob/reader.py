"""Reads a blob back, and checks it for what the runtime does not check."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit import flatbuffer as fb

from ..ir.types import DataType, Shape, constant_bytes
from . import schema
from .envelope import HEADER, IDENTIFIERS, MAGIC
from .shapes import check_shapes


def parse(blob: bytes | bytearray | memoryview) -> schema.XNNGraph:
    """Read the graph of a blob, ours or stock's, after checking header and structure.

    Raises FormatError for regions outside the blob, a wrong magic or identifier, or a malformed flatbuffer.
    """
    view = memoryview(blob).cast("B")
    if len(view) < HEADER.size:
        raise FormatError(f"{len(view)} bytes are too few for the header", where="XNNPACK blob")
    magic, _, start, size, constants, constants_size = HEADER.unpack_from(view)
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


def validate(
    blob: bytes | bytearray | memoryview,
    named_data: Mapping[str, memoryview],
    arguments: int,
    numbers: Collection[int] = (),
    types: Mapping[int, str] = MappingProxyType({}),
) -> frozenset[str]:
    """Check a blob for what the runtime does not check, or crashes on; returns the keys of the named data it uses.

    `arguments` is the number of the delegate's inputs and outputs, together with the `numbers` among them: the places
    of arguments that XNNPACK does not look at. `types` are the element types ("float16") of arguments by their place,
    as far as they are to be compared: the runtime would take the bytes of one type for another. Raises FormatError for
    values used but not defined, constants whose data is missing or has another size than their shape, arguments of
    another type, and a wrong number of arguments.
    """
    graph = parse(blob)
    section_size = HEADER.unpack_from(memoryview(blob).cast("B"))[-1]
    if graph.xvalues is None or graph.xnodes is None:
        raise FormatError("has no values or no nodes", where="XNNPACK blob")
    if graph.num_externs != arguments:
        raise FormatError(f"has {graph.num_externs} arguments, is called with {arguments}", where="XNNPACK blob")
    entries = graph.constant_data or []
    shapes: dict[int, Shape] = {}
    externs: set[int] = set()
    for index, value in enumerate(graph.xvalues):
        where = f"XNNPACK blob, value {index}"
        tensor = _tensor_of(value, where)
        _validate_tensor(tensor, where)
        shapes[tensor.id_out] = tuple(tensor.dims or ())
        if tensor.flags & (schema.EXTERNAL_INPUT | schema.EXTERNAL_OUTPUT):
            externs.add(tensor.external_id)
            _validate_argument(tensor, types.get(tensor.external_id), where)
        if tensor.constant_buffer_idx:
            _validate_constant(tensor, entries, named_data, section_size, where)
    if externs != set(range(arguments)).difference(numbers):
        raise FormatError(f"external values {sorted(externs)} are not the {arguments} arguments", where="XNNPACK blob")
    for index, node in enumerate(graph.xnodes):
        where = f"XNNPACK blob, node {index}"
        table = node.xnode_union
        if table is None:
            raise FormatError("has no operator", where=where)
        for name, identifier in vars(table).items():
            optional = name == "bias_id" or (name.startswith("input") and isinstance(table, schema.Concatenate))
            if name.endswith("_id") and identifier not in shapes and not (optional and identifier == schema.NONE):
                raise FormatError(f"{name} = {identifier} is not a value", where=f"{where} ({type(table).__name__})")
        check_shapes(table, shapes, f"{where} ({type(table).__name__})")
        bounds = node.output_min_max
        if bounds is not None and not bounds.output_min <= bounds.output_max:
            raise FormatError("clamps to an empty interval", where=where)
    return frozenset(entry.named_key for entry in entries if entry.named_key)


def _tensor_of(value: schema.XValue, where: str) -> schema.XNNTensorValue:
    tensor = value.xvalue_union
    if isinstance(tensor, schema.XNNQuantizedTensorValue):
        tensor = tensor.tensor_value
    if not isinstance(tensor, schema.XNNTensorValue):
        raise FormatError("is not a tensor", where=where)
    return tensor


def _validate_tensor(tensor: schema.XNNTensorValue, where: str) -> None:
    if len(tensor.dims or ()) != tensor.num_dims:
        raise FormatError(f"has {len(tensor.dims or ())} sizes for {tensor.num_dims} axes", where=where)
    if tensor.flags not in (0, schema.EXTERNAL_INPUT, schema.EXTERNAL_OUTPUT):
        raise FormatError(f"has flags {tensor.flags}", where=where)
    if tensor.datatype not in DataType.__members__.values() or tensor.datatype == DataType.INVALID:
        raise FormatError(f"has data type {tensor.datatype}", where=where)


def _validate_argument(tensor: schema.XNNTensorValue, dtype: str | None, where: str) -> None:
    accepted = _ARGUMENT_TYPES.get(dtype or "")
    if accepted is not None and tensor.datatype not in accepted:
        name = DataType(tensor.datatype).name
        raise FormatError(f"is argument {tensor.external_id} of type {name}, the caller's is {dtype}", where=where)


#: Element types of a caller's tensors -> those of values that have the same bytes.
_ARGUMENT_TYPES: Final[Mapping[str, Collection[DataType]]] = {
    "float32": (DataType.FLOAT32,),
    "float16": (DataType.FLOAT16,),
    "bfloat16": (DataType.BFLOAT16,),
    "int8": (DataType.QINT8, DataType.QCINT8),
    "uint8": (DataType.QUINT8,),
}


def _validate_constant(
    tensor: schema.XNNTensorValue,
    entries: list[schema.ConstantDataOffset],
    named_data: Mapping[str, memoryview],
    section_size: int,
    where: str,
) -> None:
    if tensor.constant_buffer_idx >= len(entries):
        raise FormatError(f"constant {tensor.constant_buffer_idx} of {len(entries)} does not exist", where=where)
    entry = entries[tensor.constant_buffer_idx]
    needed = constant_bytes(DataType(tensor.datatype), tensor.dims or ())
    if not entry.named_key:  # other writers leave an empty key where there is none
        available = max(0, min(entry.size, section_size - entry.offset))
    elif entry.named_key in named_data:
        available = len(named_data[entry.named_key])
    else:
        raise FormatError(f"names the constant {entry.named_key!r}, which the program does not have", where=where)
    if available < needed:
        raise FormatError(f"has a constant of {available} bytes where {tensor.dims} needs {needed}", where=where)
