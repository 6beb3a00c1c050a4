"""The serialised delegate: an XNNPACK graph in, the blob and its named data out; and back again, validated.

A blob is a header, the flatbuffer of `schema`, and a constant section that we leave empty: the runtime frees the blob
while XNNPACK still reads constants that it did not repack, so all constants travel as named data of the program.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch

from delegatekit_api import FormatError, NamedData
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.sizes import largest

from . import operators as ops
from . import schema
from .check import check_shapes
from .graph import (
    DataType,
    Graph,
    Node,
    PerChannelQuantization,
    PerGroupQuantization,
    PerRowQuantization,
    PerTensorQuantization,
    Quantization,
    Shape,
    Value,
    constant_bytes,
)

MAGIC: Final = b"XH00"
IDENTIFIERS: Final = (b"XN00", b"XN01")
#: Zeros, magic, header length, offset and size of the flatbuffer, offset and size of the constant section.
_HEADER: Final = struct.Struct("<4x4sHIIIQ")
#: The header, padded: where the flatbuffer begins.
_FLATBUFFER_OFFSET: Final = 32
_ALIGNMENT: Final = 16
#: The runtime refuses more arguments than this.
MAX_EXTERNS: Final = 4096


@dataclass(frozen=True)
class SerialisedGraph:
    """A blob, the data that it names, and the debug handles of its nodes by position."""

    blob: bytes
    named_data: tuple[NamedData, ...]
    debug_handles: Mapping[int | str, tuple[int, ...]]


# -- writing -----------------------------------------------------------------------------------------------------------


def serialise(graph: Graph) -> SerialisedGraph:
    """Write a graph, after `Graph.verify`. The same graph gives the same bytes."""
    graph.verify()
    if len(graph.inputs) + len(graph.outputs) > MAX_EXTERNS:
        raise FormatError(f"a delegate has at most {MAX_EXTERNS} inputs and outputs", where="XNNPACK graph")
    values = graph.values()
    ids = {value: index for index, value in enumerate(values)}
    constants = _Constants()
    externs = {value: index for index, value in enumerate((*graph.inputs, *graph.outputs))}
    outputs = set(graph.outputs)
    root = schema.XNNGraph(
        version="0",
        xnodes=[_node(node, ids) for node in graph.nodes],
        xvalues=[_value(value, ids[value], externs, outputs, constants) for value in values],
        num_externs=len(externs),
        input_ids=[ids[value] for value in graph.inputs],
        output_ids=[ids[value] for value in graph.outputs],
        constant_data=constants.entries,
    )
    flatbuffer = fb.serialize(root, IDENTIFIERS[1])
    body = flatbuffer + bytes(-len(flatbuffer) % _ALIGNMENT)
    end = _FLATBUFFER_OFFSET + len(body)
    header = _HEADER.pack(MAGIC, _HEADER.size, _FLATBUFFER_OFFSET, len(flatbuffer), end, 0)
    return SerialisedGraph(
        header.ljust(_FLATBUFFER_OFFSET, b"\0") + body,
        tuple(constants.named.values()),
        {index: node.debug_handles for index, node in enumerate(graph.nodes) if node.debug_handles},
    )


class _Constants:
    """The table of constants: entry 0 is a dummy, every other one names its data by content."""

    def __init__(self) -> None:
        self.entries = [schema.ConstantDataOffset()]
        self.named: dict[str, NamedData] = {}

    def index(self, data: torch.Tensor) -> int:
        key = content_key(data)
        self.named.setdefault(key, NamedData(key, data, _ALIGNMENT))
        size = data.numel() * data.element_size()
        self.entries.append(schema.ConstantDataOffset(offset=schema.NAMED, size=size, named_key=key))
        return len(self.entries) - 1


def content_key(data: torch.Tensor) -> str:
    """SHA-256 of the elements in row-major order: the key by which equal constants are stored once per file."""
    # One element is contiguous with any stride: reshape would keep that.
    elements = data.contiguous().as_strided((data.numel(),), (1,)).view(torch.uint8)
    return hashlib.sha256(elements.numpy().data).hexdigest()


def _value(
    value: Value, identifier: int, externs: Mapping[Value, int], outputs: set[Value], constants: _Constants
) -> schema.XValue:
    flags = 0
    if value in externs:
        flags = schema.EXTERNAL_OUTPUT if value in outputs else schema.EXTERNAL_INPUT
    tensor = schema.XNNTensorValue(
        datatype=int(value.datatype),
        num_dims=len(value.shape),
        # XNNPACK reads the sizes of its inputs in every call; what is declared is the largest call.
        dims=list(map(largest, value.shape)),
        constant_buffer_idx=0 if value.data is None else constants.index(value.data),
        external_id=externs.get(value, schema.NONE),
        flags=flags,
        id_out=identifier,
    )
    if value.quantization is None:
        return schema.XValue(xvalue_union=tensor)
    parameters = _parameters(value.quantization, constants)
    return schema.XValue(xvalue_union=schema.XNNQuantizedTensorValue(tensor_value=tensor, quant_params=parameters))


def _parameters(quantization: Quantization, constants: _Constants) -> Any:
    match quantization:
        case PerTensorQuantization(scale, zero_point):
            return schema.PerTensorQuant(scale=scale, zero_point=zero_point)
        case PerRowQuantization(axes):
            return schema.PerTokenDynamicQuant(num_nonbatch_dims=axes)
        case PerChannelQuantization(scales, axis):
            index = constants.index(scales)
            return schema.PerChannelQuant(scale=[], channel_dim=axis, scale_buffer_idx=index, num_scales=scales.numel())
        case PerGroupQuantization(scales, group):
            index = constants.index(scales.to(torch.bfloat16))
            return schema.PerChannelGroupQuant(
                scale=[], channel_dim=0, group_size=group, scale_buffer_idx=index, num_scales=scales.numel()
            )


def _node(node: Node, ids: Mapping[Value, int]) -> schema.XNode:
    bounds = None if node.clamp is None else schema.OutputMinMax(output_min=node.clamp.low, output_max=node.clamp.high)
    name, fields = _fields(node.operator, [ids[value] for value in node.inputs])
    table: Any = schema.NODE_TABLES[name]
    return schema.XNode(
        xnode_union=table(output_id=ids[node.output], **fields),
        debug_handle=node.debug_handles[0] if node.debug_handles else 0,
        output_min_max=bounds,
    )


def _fields(operator: ops.Operator, inputs: list[int]) -> tuple[str, dict[str, Any]]:
    """The name of an operator's node in the schema, and its fields but for the output."""
    match operator:
        case ops.Unary(kind):
            return kind.value, {"input_id": inputs[0]}
        case ops.Binary(kind):
            return kind.value, {"input1_id": inputs[0], "input2_id": inputs[1]}
        case ops.Clamp():
            return "Clamp", {"input_id": inputs[0]}
        case ops.Convert():
            return "Convert", {"input_id": inputs[0]}
        case ops.Elu(alpha):
            return "ELU", {"alpha": alpha, "input_id": inputs[0]}
        case ops.LeakyRelu(slope):
            return "LeakyReLU", {"negative_slope": slope, "input_id": inputs[0]}
        case ops.FullyConnected(transposed):
            flags = schema.TRANSPOSE_B if transposed else 0
            return "FullyConnected", {**_weighted(inputs), "flags": flags}
        case ops.BatchMatrixMultiply(transposed):
            flags = schema.TRANSPOSE_B if transposed else 0
            return "BatchMatrixMultiply", {"input1_id": inputs[0], "input2_id": inputs[1], "flags": flags}
        case ops.Convolution():
            return operator.kind.value, {**_convolution(operator), **_weighted(inputs)}
        case ops.Pool():
            return operator.kind.value, {**_pool(operator), "input_id": inputs[0]}
        case ops.GlobalAveragePool(keep_dims):
            return "GlobalAvgPooling2d", {"input_id": inputs[0], "flags": schema.KEEP_DIMS if keep_dims else 0}
        case ops.ResizeBilinear(height, width, align_corners):
            flags = schema.ALIGN_CORNERS if align_corners else 0
            sizes = {"new_height": height, "new_width": width}
            return "StaticResizeBilinear2D", {**sizes, "input_id": inputs[0], "flags": flags}
        case ops.Transpose(permutation):
            return "StaticTranspose", {
                "num_dims": len(permutation),
                "perm": list(permutation),
                "input_id": inputs[0],
            }
        case ops.Reshape(shape):
            return "StaticReshape", {"num_dims": len(shape), "new_shape": list(shape), "input_id": inputs[0]}
        case ops.Slice(offsets, sizes):
            return "StaticSlice", {
                "num_dims": len(sizes),
                "offsets": list(offsets),
                "sizes": list(sizes),
                "input_id": inputs[0],
            }
        case ops.ConstantPad(before, after, fill):
            return "StaticConstantPad", {
                "pre_paddings": list(before),
                "post_paddings": list(after),
                "padding_value": fill,
                "input_id": inputs[0],
            }
        case ops.Concatenate(axis):
            padded = [*inputs, *[schema.NONE] * (5 - len(inputs))]
            numbered = {f"input{index}_id": identifier for index, identifier in enumerate(padded, 1)}
            return f"Concatenate{len(inputs)}", {"axis": axis, **numbered}
    raise FormatError("has no form in the blob", where=str(operator))


def _weighted(inputs: list[int]) -> dict[str, int]:
    """Input, filter and bias."""
    return {"input1_id": inputs[0], "filter_id": inputs[1], "bias_id": inputs[2] if len(inputs) > 2 else schema.NONE}


def _padding(padding: ops.Padding) -> dict[str, int]:
    return {f"padding_{side}": getattr(padding, side) for side in ("top", "right", "bottom", "left")}


def _per_axis(name: str, pair: tuple[int, int]) -> dict[str, int]:
    return {f"{name}_height": pair[0], f"{name}_width": pair[1]}


def _convolution(operator: ops.Convolution) -> dict[str, int]:
    return {
        **_padding(operator.padding),
        **_per_axis("kernel", operator.kernel),
        **_per_axis("subsampling", operator.stride),
        **_per_axis("dilation", operator.dilation),
        **_per_axis("adjustment", operator.adjustment),
        "group_input_channels": operator.group_inputs,
        "group_output_channels": operator.group_outputs,
        "groups": operator.groups,
    }


def _pool(operator: ops.Pool) -> dict[str, int]:
    return {
        **_padding(operator.padding),
        **_per_axis("pooling", operator.kernel),
        **_per_axis("stride", operator.stride),
        **_per_axis("dilation", operator.dilation),
    }


# -- reading -----------------------------------------------------------------------------------------------------------


def parse(blob: bytes | bytearray | memoryview) -> schema.XNNGraph:
    """Read the graph of a blob, ours or stock's, after checking header and structure.

    Raises FormatError for regions outside the blob, a wrong magic or identifier, or a malformed flatbuffer.
    """
    view = memoryview(blob).cast("B")
    if len(view) < _HEADER.size:
        raise FormatError(f"{len(view)} bytes are too few for the header", where="XNNPACK blob")
    magic, _, start, size, constants, constants_size = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise FormatError(f"magic is {magic!r}, not {MAGIC!r}", where="XNNPACK blob, offset 4")
    if start < _HEADER.size or start + size > len(view):
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
    section_size = _HEADER.unpack_from(memoryview(blob).cast("B"))[-1]
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
