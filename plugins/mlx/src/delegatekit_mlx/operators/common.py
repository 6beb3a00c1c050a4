"""Building blocks and constraints that several families share, and the dialect of the compositions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import Call
from delegatekit_toolkit.composed import Dialect, Primitive
from delegatekit_toolkit.composed.rows import arguments, lowering
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.expressions import broadcast, is_fixed, sizes_of
from delegatekit_toolkit.flatbuffer import Table

from ..blob import schema
from ..ir.builder import GraphBuilder, Value
from ..ir.sizes import size_of

#: A value, or a number that becomes one of the other operand's type.
Term: TypeAlias = "Value | float"

FLOATS: Final = ("float32", "float16", "bfloat16")
INTEGERS: Final = ("int8", "uint8", "int32", "int64")
#: Significant bits of floating-point types.
_DIGITS: Final = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8, torch.bool: -1}
_HALVES: Final = (torch.float16, torch.bfloat16)

# -- building ----------------------------------------------------------------------------------------------------------


def pair(b: GraphBuilder, left: Term, right: Term) -> tuple[Value, Value]:
    """Two operands of one type, of which one may be a number."""
    dtype = next(item.dtype for item in (left, right) if isinstance(item, Value))
    x, y = (item if isinstance(item, Value) else b.number(item, dtype) for item in (left, right))
    return x, y


def binary(b: GraphBuilder, kind: type[Table], left: Term, right: Term, dtype: torch.dtype | None = None) -> Value:
    """An operator on two operands, which broadcast; the result's type is theirs, if none is given."""
    x, y = pair(b, left, right)
    return b.op(kind, broadcast(x.shape, y.shape), dtype or x.dtype, a=x, b=y)


def unary(b: GraphBuilder, kind: type[Table], x: Value, dtype: torch.dtype | None = None, **fields: Any) -> Value:
    """A function of each element."""
    return b.op(kind, x.shape, dtype or x.dtype, x=x, **fields)


def where(b: GraphBuilder, condition: Value, left: Term, right: Term) -> Value:
    """One of two."""
    x, y = pair(b, left, right)
    shape = broadcast(condition.shape, x.shape, y.shape)
    return b.op(schema.WhereNode, shape, x.dtype, condition=condition, x=x, y=y)


def transposed(b: GraphBuilder, x: Value, order: Sequence[int]) -> Value:
    """The axes in another order."""
    if list(order) == list(range(x.rank)):
        return x
    return b.op(schema.TransposeNode, [x.shape[axis] for axis in order], x.dtype, x=x, perm=list(order))


def expanded(b: GraphBuilder, x: Value, shape: Iterable[Any]) -> Value:
    """Broadcast to a shape."""
    wanted = sizes_of(shape)
    return x if x.shape == wanted else b.op(schema.BroadcastToNode, wanted, x.dtype, x=x, shape=wanted)


def sliced(b: GraphBuilder, x: Value, axis: int, start: Any, end: Any, step: int = 1, *, size: Any = None) -> Value:
    """The part of a value from `start` up to before `end` along an axis, which has this `size` if it is known."""
    first, last = size_of(start), size_of(end)
    if (first, last, step) == (0, x.shape[axis], 1):
        return x
    shape = list(x.shape)
    shape[axis] = (last - first + step - 1) // step if size is None else size
    return b.op(schema.SliceNode, shape, x.dtype, x=x, axis=axis, start=first, stop=last, step=step)


def concatenated(b: GraphBuilder, parts: Sequence[Value], axis: int, size: Any = None) -> Value:
    """Values one after the other along an axis."""
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts) if size is None else size
    return b.op(schema.ConcatenateNode, shape, parts[0].dtype, tensors=list(parts), axis=axis)


def inserted(b: GraphBuilder, x: Value, axis: int) -> Value:
    """A new axis of size 1."""
    return b.op(schema.ExpandDimsNode, [*x.shape[:axis], 1, *x.shape[axis:]], x.dtype, x=x, axis=axis)


def dropped(b: GraphBuilder, x: Value, axes: Iterable[int]) -> Value:
    """Without some axes of size 1."""
    gone = sorted(axes)
    if not gone:
        return x
    shape = [size for axis, size in enumerate(x.shape) if axis not in gone]
    return b.op(schema.SqueezeNode, shape, x.dtype, x=x, dims=gone)


def in_float32(b: GraphBuilder, x: Value, make: Any) -> Value:
    """A function of a value, of halves in float32: their sums would have few digits, or be infinite."""
    made: Value = make(b.cast(x, torch.float32) if x.dtype in _HALVES else x)
    return b.cast(made, x.dtype)


def reduced(
    b: GraphBuilder, kind: type[Table], x: Value, axes: Iterable[int], *, keep: bool = True, **more: Any
) -> Value:
    """A reduction along axes, which stay with size 1 if `keep` says so."""
    along = sorted(axes)
    if not along:
        return x
    shape = [1 if axis in along else size for axis, size in enumerate(x.shape) if keep or axis not in along]
    return b.op(kind, shape, x.dtype, x=x, axes=along, keepdims=keep, **more)


def summed(b: GraphBuilder, kind: type[Table], x: Value, axes: Iterable[int], *, keep: bool = True) -> Value:
    """A sum, mean or product along axes, of halves in float32."""
    return in_float32(b, x, lambda wide: reduced(b, kind, wide, axes, keep=keep))


def taken(b: GraphBuilder, x: Value, axis: int, indices: Value) -> Value:
    """Slices of a value along an axis."""
    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    return b.op(schema.TakeNode, shape, x.dtype, x=x, index=indices, axis=axis)


def tensor(b: GraphBuilder, call: Call, name: str = "self") -> Value:
    """The value of an operand."""
    return b.value(call[name])


def floating(b: GraphBuilder, call: Call, name: str = "self") -> Value:
    """An operand in the result's type."""
    return b.cast(b.value(call[name]), call.results[0].dtype)


# -- the dialect of the compositions -----------------------------------------------------------------------------------


def _one(kind: type[Table]) -> Primitive[Value]:
    return lambda b, x: unary(b, kind, x)


def _two(kind: type[Table]) -> Primitive[Value]:
    return lambda b, left, right: binary(b, kind, left, right)


def _compared(kind: type[Table]) -> Primitive[Value]:
    def compare(b: GraphBuilder, left: Value, right: Term) -> Value:
        if left.dtype is torch.bool and not isinstance(right, Value | bool):
            left = b.cast(left, torch.float32 if isinstance(right, float) else torch.int32)
        return binary(b, kind, left, right, torch.bool)

    return compare


def _floor_divide(b: GraphBuilder, left: Value, right: Term) -> Value:
    if left.is_float:
        return unary(b, schema.FloorNode, binary(b, schema.DivideNode, left, right))
    return binary(b, schema.FloorDivideNode, left, right)


def _places(b: GraphBuilder, x: Value, axis: int) -> Value:
    size = x.shape[axis]
    assert isinstance(size, int)
    order = torch.arange(size).reshape([-1 if at == axis else 1 for at in range(x.rank)])
    return expanded(b, b.constant(order), x.shape)


def _sigmoid(b: GraphBuilder, x: Value) -> Value:
    """The sigmoid, of halves in float32: MLX's own on processors is 0 where small numbers are due."""
    return in_float32(b, x, lambda wide: unary(b, schema.SigmoidNode, wide))


def _exp2(b: GraphBuilder, x: Value) -> Value:
    """2^x as a power: the exponential of a product would have the product's rounding, and overflow on processors."""
    return in_float32(b, x, lambda wide: binary(b, schema.PowerNode, 2.0, wide))


def _extreme(kind: type[Table]) -> Primitive[Value]:
    return lambda b, x, axes, keep: reduced(b, kind, x, axes, keep=keep)


def _summed(kind: type[Table]) -> Primitive[Value]:
    return lambda b, x, axes, keep: summed(b, kind, x, axes, keep=keep)


#: MLX's operators by the names of the compositions.
DIALECT: Final[Dialect[Value]] = Dialect(
    {
        **{
            name: _two(kind)
            for name, kind in {
                "add": schema.AddNode,
                "sub": schema.SubtractNode,
                "mul": schema.MultiplyNode,
                "div": schema.DivideNode,
                "pow": schema.PowerNode,
                "and": schema.LogicalAndNode,
                "or": schema.LogicalOrNode,
                "minimum": schema.MinimumNode,
                "maximum": schema.MaximumNode,
                "atan2": schema.Atan2Node,
                "bitwise_and": schema.BitwiseAndNode,
                "bitwise_or": schema.BitwiseOrNode,
                "bitwise_xor": schema.BitwiseXorNode,
            }.items()
        },
        **{
            name: _compared(kind)
            for name, kind in {
                "eq": schema.EqualNode,
                "ne": schema.NotEqualNode,
                "lt": schema.LessNode,
                "le": schema.LessEqualNode,
                "gt": schema.GreaterNode,
                "ge": schema.GreaterEqualNode,
            }.items()
        },
        **{
            name: _one(kind)
            for name, kind in {
                "neg": schema.NegNode,
                "abs": schema.AbsNode,
                "sign": schema.SignNode,
                "floor": schema.FloorNode,
                "ceil": schema.CeilNode,
                "trunc": schema.TruncNode,
                "round": schema.RoundNode,
                "sqrt": schema.SqrtNode,
                "rsqrt": schema.RsqrtNode,
                "reciprocal": schema.ReciprocalNode,
                "exp": schema.ExpNode,
                "expm1": schema.Expm1Node,
                "log": schema.LogNode,
                "log1p": schema.Log1pNode,
                "log2": schema.Log2Node,
                "log10": schema.Log10Node,
                "sin": schema.SinNode,
                "cos": schema.CosNode,
                "tan": schema.TanNode,
                "asin": schema.ArcsinNode,
                "acos": schema.ArccosNode,
                "atan": schema.ArctanNode,
                "sinh": schema.SinhNode,
                "cosh": schema.CoshNode,
                "tanh": schema.TanhNode,
                "asinh": schema.ArcsinhNode,
                "acosh": schema.ArccoshNode,
                "atanh": schema.ArctanhNode,
                "not": schema.LogicalNotNode,
            }.items()
        },
        "bitwise_not": lambda b, x: unary(
            b, schema.LogicalNotNode if x.dtype is torch.bool else schema.BitwiseInvertNode, x
        ),
        "sigmoid": _sigmoid,
        "exp2": _exp2,
        "floor_divide": _floor_divide,
        "where": where,
        "slice": sliced,
        "concat": concatenated,
        "insert": inserted,
        "drop": dropped,
        "places": _places,
        "integers": lambda b, x: b.cast(x, torch.int32),
        "reduce_sum": _summed(schema.SumNode),
        "reduce_mean": _summed(schema.MeanNode),
        "reduce_max": _extreme(schema.MaxNode),
        "reduce_min": _extreme(schema.MinNode),
    },
    lambda x: _DIGITS.get(x.dtype, 0),
)

#: Of two values, of which one may be a Python number.
add, sub, mul, div = (DIALECT.primitives[name] for name in ("add", "sub", "mul", "div"))


def _size(b: GraphBuilder, size: Any, call: Call) -> Value:
    wanted = call.results[0].dtype
    return b.full((), size, wanted if wanted.is_floating_point else tensor(b, call).dtype)


#: An argument for a composition.
number: Final = arguments(DIALECT, lambda b, value, call: b.cast(value, call.results[0].dtype), _size)
#: Makes a lowering function of a composition: its operands, and arguments that it takes as they are.
composed: Final = functools.partial(lowering, argument=number, copied=lambda b, value: value)

# -- constraints -------------------------------------------------------------------------------------------------------

REAL: Final = dtypes(*FLOATS)
NUMBERS: Final = dtypes(*FLOATS, *INTEGERS)
ANY: Final = dtypes(*FLOATS, *INTEGERS, "bool")


def fixed(sizes: Iterable[Any]) -> bool:
    """True if sizes are the same in every call."""
    return all(map(is_fixed, sizes))
