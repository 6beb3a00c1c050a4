"""Checks that the shapes in a blob fit its operators: the runtime trusts attributes that it should not.

A damaged padding or kernel size makes XNNPACK read far outside its buffers or run for hours. Each node is read back as
the operator that it stands for, and the shape of its result compared with the one that the blob declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from delegatekit_api import FormatError, LoweringError

from ..ir import operators as ops
from ..ir.types import Shape
from . import schema


def check_shapes(table: Any, shapes: Mapping[int, Shape], where: str) -> None:
    """Compare the result of one node with its declared shape.

    `shapes` maps value ids to the sizes that the blob declares: those of the largest call. Nodes that this package
    never writes are not checked. Raises FormatError.
    """
    for name in ("perm", "new_shape", "offsets", "sizes"):
        numbers = getattr(table, name, ())
        if len(numbers or ()) != getattr(table, "num_dims", 0) and hasattr(table, name):
            raise FormatError(f"has {len(numbers or ())} numbers in {name} for {table.num_dims} axes", where=where)
    read = _READERS.get(type(table).__mro__[1])
    operator = read(table) if read is not None else None
    if operator is None:
        return
    inputs = tuple(shapes[identifier] for identifier in _input_ids(table))
    declared = shapes[table.output_id]
    try:
        expected = operator.output_shape(*inputs)
    except (LoweringError, ValueError, ZeroDivisionError, IndexError) as error:
        raise FormatError(f"does not fit its inputs of shapes {inputs}: {error}", where=where) from error
    if expected != declared:
        raise FormatError(f"makes {expected} of {inputs}, but declares {declared}", where=where)


def _input_ids(table: Any) -> list[int]:
    """The ids of what a node reads, in the order of the operator's inputs; inputs left out do not appear."""
    names = [name for name in vars(table) if name.endswith("_id") and name != "output_id"]
    return [identifier for name in names if (identifier := getattr(table, name)) != schema.NONE]


def _pair(table: Any, name: str) -> tuple[int, int]:
    return getattr(table, f"{name}_height"), getattr(table, f"{name}_width")


def _padding(table: Any) -> ops.Padding:
    return ops.Padding(*(getattr(table, f"padding_{side}") for side in ("top", "right", "bottom", "left")))


def _unary(table: Any) -> ops.Operator | None:
    name = type(table).__name__
    if name == "GlobalAvgPooling2d":
        return ops.GlobalAveragePool(bool(table.flags & schema.KEEP_DIMS))
    return ops.Clamp() if name in ("Clamp", "Convert") or name in ops.UnaryKind.__members__.values() else None


def _binary(table: Any) -> ops.Operator | None:
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
    return ops.Pool(kind, _padding(table), _pair(table, "pooling"), _pair(table, "stride"), _pair(table, "dilation"))


#: Fields of a node -> how to read it back.
_READERS: dict[type, Callable[[Any], ops.Operator | None]] = {
    schema.OneInput: _unary,
    schema.TwoInputs: _binary,
    schema.FullyConnected: lambda table: ops.FullyConnected(bool(table.flags & schema.TRANSPOSE_B)),
    schema.Convolution: _convolution,
    schema.Pooling: _pool,
    schema.Concatenate: lambda table: ops.Concatenate(table.axis),
    schema.StaticTranspose: lambda table: ops.Transpose(tuple(table.perm or ())),
    schema.StaticReshape: lambda table: ops.Reshape(tuple(table.new_shape or ())),
    schema.StaticSlice: lambda table: ops.Slice(tuple(table.offsets or ()), tuple(table.sizes or ())),
    schema.StaticConstantPad: lambda table: ops.ConstantPad(
        tuple(table.pre_paddings or ()), tuple(table.post_paddings or ()), table.padding_value
    ),
    schema.StaticResizeBilinear2D: lambda table: ops.ResizeBilinear(table.new_height, table.new_width, False),
    schema.ELU: lambda table: ops.Elu(table.alpha),
    schema.LeakyReLU: lambda table: ops.LeakyRelu(table.negative_slope),
}
