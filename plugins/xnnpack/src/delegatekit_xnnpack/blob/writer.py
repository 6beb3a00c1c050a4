"""Writes the blob: an XNNPACK graph in, the blob, its named data and its debug handles out.

The constant section stays empty: the runtime frees the blob while XNNPACK still reads constants that it did not repack,
so all constants travel as named data of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from delegatekit_api import FormatError, NamedData
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.content import ConstantStore
from delegatekit_toolkit.sizes import largest

from ..ir import operators as ops
from ..ir.graph import Graph, Node, Value
from ..ir.types import (
    PerChannelQuantization,
    PerGroupQuantization,
    PerRowQuantization,
    PerTensorQuantization,
    Quantization,
)
from . import schema
from .envelope import ALIGNMENT, FLATBUFFER_OFFSET, HEADER, IDENTIFIERS, MAGIC, MAX_EXTERNS


@dataclass(frozen=True)
class SerializedGraph:
    """A blob, the data that it refers to, and the debug handles of its nodes by position."""

    blob: bytes
    named_data: tuple[NamedData, ...]
    debug_handles: Mapping[int | str, tuple[int, ...]]


def serialize(graph: Graph) -> SerializedGraph:
    """Write a graph, after `Graph.verify`. The same graph gives the same bytes."""
    graph.verify()
    if len(graph.inputs) + len(graph.outputs) > MAX_EXTERNS:
        raise FormatError(f"a delegate has at most {MAX_EXTERNS} inputs and outputs", where="XNNPACK graph")
    values = graph.values()
    ids = {value: index for index, value in enumerate(values)}
    constants = _Constants()
    externs = {value: index for index, value in enumerate((*graph.inputs, *graph.outputs))}
    flags = {
        **dict.fromkeys(graph.inputs, schema.EXTERNAL_INPUT),
        **dict.fromkeys(graph.outputs, schema.EXTERNAL_OUTPUT),
    }
    root = schema.XNNGraph(
        version="0",
        xnodes=[_node(node, ids) for node in graph.nodes],
        xvalues=[_value(value, ids[value], externs, flags, constants) for value in values],
        num_externs=len(externs),
        input_ids=[ids[value] for value in graph.inputs],
        output_ids=[ids[value] for value in graph.outputs],
        constant_data=constants.entries,
    )
    flatbuffer = fb.serialize(root, IDENTIFIERS[1])
    body = flatbuffer + bytes(-len(flatbuffer) % ALIGNMENT)
    end = FLATBUFFER_OFFSET + len(body)
    header = HEADER.pack(MAGIC, HEADER.size, FLATBUFFER_OFFSET, len(flatbuffer), end, 0)
    return SerializedGraph(
        header.ljust(FLATBUFFER_OFFSET, b"\0") + body,
        constants.store.named_data,
        {index: node.debug_handles for index, node in enumerate(graph.nodes) if node.debug_handles},
    )


class _Constants:
    """The table of constants: entry 0 is a dummy, every other one refers to its data by content."""

    def __init__(self) -> None:
        self.entries = [schema.ConstantDataOffset()]
        self.store = ConstantStore(alignment=ALIGNMENT)

    def index(self, data: torch.Tensor) -> int:
        key = self.store.add(data)
        size = data.numel() * data.element_size()
        self.entries.append(schema.ConstantDataOffset(offset=schema.NAMED, size=size, named_key=key))
        return len(self.entries) - 1


def _value(
    value: Value, identifier: int, externs: Mapping[Value, int], flags: Mapping[Value, int], constants: _Constants
) -> schema.XValue:
    tensor = schema.XNNTensorValue(
        datatype=int(value.datatype),
        num_dims=len(value.shape),
        # XNNPACK reads the sizes of its inputs in every call; the declared ones are those of the largest call.
        dims=list(map(largest, value.shape)),
        constant_buffer_idx=0 if value.data is None else constants.index(value.data),
        external_id=externs.get(value, schema.NONE),
        flags=flags.get(value, 0),
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
    """The name of an operator's node in the schema, and its fields without the output."""
    first = inputs[0]
    match operator:
        case ops.Unary(kind):
            return kind.value, {"input_id": first}
        case ops.Binary(kind):
            return kind.value, {"input1_id": first, "input2_id": inputs[1]}
        case ops.Clamp():
            return "Clamp", {"input_id": first}
        case ops.Convert():
            return "Convert", {"input_id": first}
        case ops.Elu(alpha):
            return "ELU", {"alpha": alpha, "input_id": first}
        case ops.LeakyRelu(slope):
            return "LeakyReLU", {"negative_slope": slope, "input_id": first}
        case ops.FullyConnected(transposed):
            flags = schema.TRANSPOSE_B if transposed else 0
            return "FullyConnected", {**_weighted(inputs), "flags": flags}
        case ops.BatchMatrixMultiply(transposed):
            flags = schema.TRANSPOSE_B if transposed else 0
            return "BatchMatrixMultiply", {"input1_id": first, "input2_id": inputs[1], "flags": flags}
        case ops.Convolution():
            return operator.kind.value, {**_convolution(operator), **_weighted(inputs)}
        case ops.Pool():
            return operator.kind.value, {**_pool(operator), "input_id": first}
        case ops.GlobalAveragePool(keep_dims):
            return "GlobalAvgPooling2d", {"input_id": first, "flags": schema.KEEP_DIMS if keep_dims else 0}
        case ops.ResizeBilinear(height, width, align_corners):
            flags = schema.ALIGN_CORNERS if align_corners else 0
            sizes = {"new_height": height, "new_width": width}
            return "StaticResizeBilinear2D", {**sizes, "input_id": first, "flags": flags}
        case ops.Transpose(permutation):
            return "StaticTranspose", {
                "num_dims": len(permutation),
                "perm": permutation,
                "input_id": first,
            }
        case ops.Reshape(shape):
            return "StaticReshape", {"num_dims": len(shape), "new_shape": shape, "input_id": first}
        case ops.Slice(offsets, sizes):
            return "StaticSlice", {
                "num_dims": len(sizes),
                "offsets": offsets,
                "sizes": sizes,
                "input_id": first,
            }
        case ops.ConstantPad(before, after, fill):
            return "StaticConstantPad", {
                "pre_paddings": before,
                "post_paddings": after,
                "padding_value": fill,
                "input_id": first,
            }
        case ops.Concatenate(axis):
            padded = [*inputs, *[schema.NONE] * (ops.CONCATENATE_LIMIT - len(inputs))]
            numbered = {f"input{index}_id": identifier for index, identifier in enumerate(padded, 1)}
            return f"Concatenate{len(inputs)}", {"axis": axis, **numbered}
    raise FormatError("has no representation in the blob", where=str(operator))


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
