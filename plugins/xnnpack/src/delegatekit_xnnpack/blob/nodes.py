"""The nodes of a blob, each read back as its operator and checked: XNNPACK trusts most of their fields.

A damaged padding, kernel size or type makes XNNPACK read far outside its buffers or run for hours. Nodes that stock's
exporter writes and this package never does are read, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit.dataflow import element_count

from ..ir import operators as ops
from ..ir.types import DataType, Format, Shape
from . import schema
from .values import BlobValue

#: The flags that nodes may have. They change a node's result, except KEEP_DIMS of windows, which stock sets.
_FLAGS: Final = {
    "FullyConnected": schema.TRANSPOSE_B,
    "BatchMatrixMultiply": schema.TRANSPOSE_B,
    "GlobalAvgPooling2d": schema.KEEP_DIMS,
    "AvgPooling2d": schema.KEEP_DIMS,
    "MaxPooling2d": schema.KEEP_DIMS,
    "StaticResizeBilinear2D": schema.ALIGN_CORNERS,
}
#: Types of the indices that ArgMaxPooling2d returns: all have 32 bits, and stock may declare any of them.
_INDEX_TYPES: Final = (DataType.FLOAT32, DataType.INT32, DataType.QINT32)


@dataclass(frozen=True)
class ArgMaxPool(ops.Operator):
    """Maxima of x (N, H, W, C) over adjacent windows, and their positions in the windows. Read, never written."""

    padding: ops.Padding
    kernel: tuple[int, int]

    def _shape(self, *inputs: Shape) -> Shape:
        return ops.Pool(ops.PoolKind.MAXIMUM, self.padding, self.kernel, self.kernel).output_shape(*inputs)


@dataclass(frozen=True)
class BlobNode:
    """A node: its operator, and the ids of its inputs and outputs."""

    operator: ops.Operator
    inputs: tuple[int, ...]
    #: One, except for ArgMaxPooling2d: the maxima and their indices.
    outputs: tuple[int, ...]
    #: Its name in messages.
    where: str

    def shape(self, inputs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The sizes of the results for these sizes of the inputs. Raises FormatError if they do not match."""
        try:
            found = tuple(map(int, self.operator.output_shape(*inputs)))  # type: ignore[arg-type]
        except (LoweringError, ValueError, ZeroDivisionError, IndexError) as error:
            what = error.what if isinstance(error, LoweringError) else error
            raise FormatError(f"does not fit its inputs of shapes {tuple(inputs)}: {what}", where=self.where) from error
        element_count(found, self.where, item_bytes=4)
        return found

    def in_call(self, inputs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """`shape` for the sizes of one call: XNNPACK's slices end where the input does."""
        operator = self.operator
        if isinstance(operator, ops.Slice):
            pairs = zip(operator.offsets, operator.sizes, inputs[0], strict=True)
            sizes = tuple(min(size, extent - offset) for offset, size, extent in pairs)
            return replace(self, operator=replace(operator, sizes=sizes)).shape(inputs)
        return self.shape(inputs)


def read_node(node: schema.XNode, values: Mapping[int, BlobValue], where: str) -> BlobNode:
    """Read a node and check it against the values. Raises FormatError."""
    table: Any = node.xnode_union
    if table is None:
        raise FormatError("has no operator", where=where)
    name = type(table).__name__
    where = f"{where} ({name})"
    bounds = node.output_min_max
    if bounds is not None and not bounds.output_min <= bounds.output_max:
        raise FormatError("clamps to an empty interval", where=where)
    if table.flags & ~_FLAGS.get(name, 0):
        raise FormatError(f"has flags {table.flags}, which are not supported", where=where)
    _check_counts(table, where)
    read = BlobNode(_operator(table, where), *_ids(table, values, where), where)
    _check_attributes(read)
    _check_types(read, values)
    return read


def _check_counts(table: Any, where: str) -> None:
    for name in ("perm", "new_shape", "offsets", "sizes"):
        if hasattr(table, name):
            count = len(getattr(table, name) or ())
            if count != table.num_dims:
                raise FormatError(f"has {count} numbers in {name} for {table.num_dims} axes", where=where)


def _ids(table: Any, values: Mapping[int, BlobValue], where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of a node's inputs, in the order of the operator's, and of its outputs. A bias may be missing."""
    names = [name for name in vars(table) if name.endswith("_id")]
    if isinstance(table, schema.Concatenate):
        names = [f"input{number}_id" for number in range(1, int(type(table).__name__[-1]) + 1)] + ["output_id"]
    found: dict[str, int] = {}
    for name in names:
        identifier = getattr(table, name)
        if name == "bias_id" and identifier == schema.NONE:
            continue
        if identifier not in values:
            raise FormatError(f"{name} = {identifier} is not a value", where=where)
        found[name] = identifier
    writes = {name for name in found if name.startswith("output")}
    inputs = tuple(identifier for name, identifier in found.items() if name not in writes)
    return inputs, tuple(identifier for name, identifier in found.items() if name in writes)


# -- requirements of operators on attributes and types -------------------------------------------------------------


def _check_attributes(node: BlobNode) -> None:
    """Check the attributes that XNNPACK computes addresses with and that the shapes of the values do not determine."""
    operator = node.operator
    if not isinstance(operator, ops.Convolution | ops.Pool | ArgMaxPool):
        return
    steps = [*operator.kernel]
    if not isinstance(operator, ArgMaxPool):
        steps += [*operator.stride, *operator.dilation]
    if min(steps) < 1:
        raise FormatError(f"has a kernel, stride or dilation of 0: {operator}", where=node.where)
    if isinstance(operator, ops.Convolution):
        depthwise = operator.kind is ops.ConvolutionKind.DEPTHWISE
        limits = map(max, zip(operator.stride, operator.dilation, strict=True))
        excess = any(extra >= limit for extra, limit in zip(operator.adjustment, limits, strict=True))
        if excess:
            raise FormatError(f"has attributes that no convolution has: {operator}", where=node.where)
        if depthwise and operator.group_inputs != 1:
            raise FormatError(f"has {operator.group_inputs} input channels in each group, not 1", where=node.where)
        return
    dilation = operator.dilation if isinstance(operator, ops.Pool) else (1, 1)
    reach = [(size - 1) * step + 1 for size, step in zip(operator.kernel, dilation, strict=True)]
    padding = operator.padding
    if max(padding.top, padding.bottom) >= reach[0] or max(padding.left, padding.right) >= reach[1]:
        raise FormatError(f"has windows that lie in the padding alone: {operator}", where=node.where)


def _check_types(node: BlobNode, values: Mapping[int, BlobValue]) -> None:
    """Check that elements have the types that XNNPACK assumes for the node's values."""
    operator, where = node.operator, node.where
    inputs, outputs = ([values[identifier] for identifier in ids] for ids in (node.inputs, node.outputs))
    if isinstance(operator, ops.FullyConnected | ops.Convolution):
        _check_weights(operator, inputs[1:], where)
        inputs = inputs[:1]
    for value in (*inputs, *outputs):
        if isinstance(value.quantization, schema.PerChannelQuant | schema.PerChannelGroupQuant):
            raise FormatError("has scales of channels outside its weight and bias", where=where)
    if operator.weighted or isinstance(operator, ops.Convert):
        return  # XNNPACK supports some combinations and refuses the others
    if isinstance(operator, ArgMaxPool):
        index = outputs.pop()
        if index.datatype not in _INDEX_TYPES:
            raise FormatError(f"has indices of type {index.datatype.name}", where=where)
    types = {value.datatype for value in (*inputs, *outputs)}
    if len(types) > 1:
        raise FormatError(f"has values of several types, {', '.join(sorted(item.name for item in types))}", where=where)


def _check_weights(operator: ops.FullyConnected | ops.Convolution, weights: Sequence[BlobValue], where: str) -> None:
    """Check filter and bias: XNNPACK packs those of convolutions at load time, with one scale for each channel."""
    if isinstance(operator, ops.FullyConnected):
        axis = int(operator.transposed)
    else:
        axis = 3 if operator.kind is ops.ConvolutionKind.DEPTHWISE else 0
        if not all(value.is_constant for value in weights):
            raise FormatError("has a filter or bias that is not a constant", where=where)
    # A bias has one axis.
    table = weights[0].quantization
    if isinstance(table, schema.PerChannelQuant) and table.channel_dim != axis:
        raise FormatError(f"has scales along axis {table.channel_dim} of its filter", where=where)


# -- operators -------------------------------------------------------------------------------------------------------


def _operator(table: Any, where: str) -> ops.Operator:
    read = _READERS.get(type(table).__mro__[1])
    operator = read(table) if read is not None else None
    if operator is None:
        raise FormatError("is an operator that the runtime lacks", where=where)
    return operator


def _pair(table: Any, name: str) -> tuple[int, int]:
    return getattr(table, f"{name}_height"), getattr(table, f"{name}_width")


def _padding(table: Any) -> ops.Padding:
    return ops.Padding(*(getattr(table, f"padding_{side}") for side in ("top", "right", "bottom", "left")))


def _unary(table: Any) -> ops.Operator | None:
    name = type(table).__name__
    if name == "GlobalAvgPooling2d":
        return ops.GlobalAveragePool(bool(table.flags & schema.KEEP_DIMS))
    if name == "Convert":
        return ops.Convert(Format())
    if name == "Clamp":
        return ops.Clamp()
    return ops.Unary(ops.UnaryKind(name)) if name in ops.UnaryKind.__members__.values() else None


def _binary(table: Any) -> ops.Operator:
    name = type(table).__name__
    if name == "BatchMatrixMultiply":
        return ops.BatchMatrixMultiply(bool(table.flags & schema.TRANSPOSE_B))
    return ops.Binary(ops.BinaryKind(name))


def _convolution(table: Any) -> ops.Operator:
    return ops.Convolution(
        ops.ConvolutionKind(type(table).__name__),
        _padding(table),
        _pair(table, "kernel"),
        _pair(table, "subsampling"),
        _pair(table, "dilation"),
        table.groups,
        table.group_input_channels,
        table.group_output_channels,
        _pair(table, "adjustment"),
    )


def _pool(table: Any) -> ops.Operator:
    kind = ops.PoolKind(type(table).__name__)
    # XNNPACK has no averages with dilation and ignores it; stock's exporter writes zeros.
    dilation = (1, 1) if kind is ops.PoolKind.AVERAGE else _pair(table, "dilation")
    return ops.Pool(kind, _padding(table), _pair(table, "pooling"), _pair(table, "stride"), dilation)


#: Fields of a node -> the function that reads it back.
_READERS: Final[dict[type, Callable[[Any], ops.Operator | None]]] = {
    schema.OneInput: _unary,
    schema.TwoInputs: _binary,
    schema.FullyConnected: lambda table: ops.FullyConnected(bool(table.flags & schema.TRANSPOSE_B)),
    schema.Convolution: _convolution,
    schema.Pooling: _pool,
    schema.ArgMaxPooling2d: lambda table: ArgMaxPool(_padding(table), _pair(table, "pooling")),
    schema.Concatenate: lambda table: ops.Concatenate(table.axis),
    schema.StaticTranspose: lambda table: ops.Transpose(tuple(table.perm or ())),
    schema.StaticReshape: lambda table: ops.Reshape(tuple(table.new_shape or ())),
    schema.StaticSlice: lambda table: ops.Slice(tuple(table.offsets or ()), tuple(table.sizes or ())),
    schema.StaticConstantPad: lambda table: ops.ConstantPad(
        tuple(table.pre_paddings or ()), tuple(table.post_paddings or ()), table.padding_value
    ),
    schema.StaticResizeBilinear2D: lambda table: ops.ResizeBilinear(
        table.new_height, table.new_width, bool(table.flags & schema.ALIGN_CORNERS)
    ),
    schema.ELU: lambda table: ops.Elu(table.alpha),
    schema.LeakyReLU: lambda table: ops.LeakyRelu(table.negative_slope),
}
