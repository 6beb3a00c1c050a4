"""Building blocks and constraints that several families share, and the dialect of the compositions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed import Dialect, Primitive
from delegatekit_toolkit.composed.rows import arguments, lowering
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.expressions import Expression, broadcast, expression_of, is_fixed, sizes_of

from ..ir.builder import Var, datatype_of, numbers
from ..ir.types import DataType
from .program import ProgramBuilder

#: A value, or a number that becomes a constant of the other operand's type.
Term: TypeAlias = "Var | float"

FLOATS: Final = ("float32", "float16")
INTEGERS: Final = ("int32", "int64")
#: No divisor is smaller than this, the smallest normal number of float16.
LEAST_DIVISOR: Final = 2.0**-14
#: The smallest number of float16: what an epsilon becomes that would be 0.
_HALF_TINY: Final = 2.0**-24

# -- building ----------------------------------------------------------------------------------------------------------


def binary(b: ProgramBuilder, kind: str, left: Term, right: Term) -> Var:
    """An operation on x and y, which broadcast."""
    datatype = next(datatype_of(item) for item in (left, right) if not isinstance(item, int | float))
    x, y = (b.number(item, datatype) if isinstance(item, int | float) else item for item in (left, right))
    return b.call(kind, x=x, y=y)


def unary(b: ProgramBuilder, kind: str, x: Var) -> Var:
    """A function of each element."""
    return b.call(kind, x=x)


def clamp(b: ProgramBuilder, x: Var, low: float | None, high: float | None) -> Var:
    """x between two numbers; where the first is the larger one, everything is the second, as in PyTorch."""
    if datatype_of(x).is_float and low is not None and high is not None and low < high:
        if (low, high) == (0, 6):
            return unary(b, "relu6", x)
        datatype = datatype_of(x)
        return b.call("clip", x=x, alpha=b.number(low, datatype), beta=b.number(high, datatype))
    if low is not None:
        x = unary(b, "relu", x) if low == 0 and datatype_of(x).is_float else binary(b, "maximum", x, low)
    return x if high is None else binary(b, "minimum", x, high)


def where(b: ProgramBuilder, condition: Var, left: Term, right: Term) -> Var:
    """One of two. MIL's builder takes the size of the result from the two: the condition may be larger."""
    like = next(item for item in (left, right) if not isinstance(item, int | float))
    first, second = (
        b.number(item, datatype_of(like)) if isinstance(item, int | float) else item for item in (left, right)
    )
    shape = broadcast(sizes_of(np.shape(first)), sizes_of(np.shape(second)))
    if (full := broadcast(sizes_of(condition.shape), shape)) != shape:
        if second is like:
            second = expanded(b, second, full)
        else:
            first = expanded(b, first, full)
    return b.call("select", cond=condition, a=first, b=second)


def reshaped(b: ProgramBuilder, x: Var, shape: Sequence[Any]) -> Var:
    """The same elements in another shape."""
    shape = sizes_of(shape)
    if tuple(x.shape) == shape:
        return x
    if not shape:
        return b.call("squeeze", x=x, axes=numbers(range(len(x.shape))))
    if not x.shape:
        return b.call("expand_dims", x=x, axes=numbers(range(len(shape))))
    return b.reshape(x, shape)


def expanded(b: ProgramBuilder, x: Var, shape: Sequence[Any]) -> Var:
    """Broadcast to a shape."""
    shape = sizes_of(shape)
    missing = len(shape) - len(x.shape)
    if missing and any(not is_fixed(size) for size in x.shape):
        x = b.call("expand_dims", x=x, axes=numbers(range(missing)))
    else:
        x = reshaped(b, x, (1,) * missing + tuple(x.shape))
    reps = [new if old == 1 else 1 for new, old in zip(shape, x.shape, strict=True)]
    return x if set(reps) <= {1} else b.tile(x, reps)


def sliced(b: ProgramBuilder, x: Var, axis: int, start: Any, end: Any, step: int = 1) -> Var:
    """The part of a value from `start` up to before `end` along an axis. Sizes that change count from the front."""
    rank, shape = len(x.shape), sizes_of(x.shape)
    start, end = expression_of(start), expression_of(end)
    if (start, end, step) == (0, shape[axis], 1):
        return x
    if all(isinstance(size, int) for size in (*shape, start, end)):
        begins, ends, steps = [0] * rank, list(shape), [1] * rank
        begins[axis], ends[axis], steps[axis] = start, end, step
        return b.call("slice_by_index", x=x, begin=numbers(begins), end=numbers(ends), stride=numbers(steps))
    bounds = [_counted(bound, shape[axis]) for bound in (start, end)]
    whole = [at != axis for at in range(rank)]
    return b.call(
        "slice_by_index",
        x=x,
        begin=b.sizes([bounds[0] if at == axis else 0 for at in range(rank)]),
        end=b.sizes([bounds[1] if at == axis else 0 for at in range(rank)]),
        stride=numbers([step if at == axis else 1 for at in range(rank)]),
        begin_mask=np.array(whole),
        end_mask=np.array([item or (at == axis and end == shape[axis]) for at, item in enumerate(whole)]),
    )


def _counted(bound: Expression, size: Expression) -> Expression:
    """A bound of a slice, from the end where that is a number; 0 where it is the end, which a mask says."""
    less = expression_of(bound - size)
    return less if not isinstance(bound, int) and isinstance(less, int) and less <= 0 else bound


def updated(b: ProgramBuilder, x: Var, axis: int, start: Term, end: Term, source: Var) -> Var:
    """A value with another one in the place of a part along an axis, in one operation: iOS 18 has it. Bounds that are
    computed are vectors of one element."""
    rank = len(x.shape)
    others = np.array([at != axis for at in range(rank)])
    begin, stop = (
        numbers([bound if at == axis else 0 for at in range(rank)])
        if isinstance(bound, int)
        else concatenated(b, [*[numbers([0])] * axis, bound, *[numbers([0])] * (rank - axis - 1)], 0)
        for bound in (start, end)
    )
    return b.call(
        "slice_update",
        x=x,
        update=source,
        begin=begin,
        end=stop,
        stride=numbers([1] * rank),
        begin_mask=others,
        end_mask=others,
    )


def concatenated(b: ProgramBuilder, parts: list[Var], axis: int) -> Var:
    """Values one after the other along an axis."""
    first, *others = parts
    return b.call("concat", values=parts, axis=numbers([axis])[0]) if others else first


def epsilon(b: ProgramBuilder, value: float, datatype: DataType) -> object:
    """A small number that keeps a divisor from being 0: it stays above 0 in float16, too."""
    if datatype is DataType.FLOAT16 and value > 0:
        value = max(value, _HALF_TINY)
    return b.number(value, datatype)


def tensor(b: ProgramBuilder, call: Call, name: str = "self") -> Var:
    """The value of an operand."""
    return b.value(call[name])


def floating(b: ProgramBuilder, call: Call, name: str = "self") -> Var:
    """An operand in the result's floating-point type: PyTorch takes integers, too."""
    return b.cast(b.value(call[name]), b.result_type(call))


def without_epsilon(kind: str) -> Primitive[Var]:
    """MIL adds a small number to the operand of these, unless it is told not to."""
    return lambda b, x: b.call(kind, x=x, epsilon=b.number(0, datatype_of(x)))


def _one(kind: str) -> Primitive[Var]:
    return lambda b, x: unary(b, kind, x)


def _two(kind: str) -> Primitive[Var]:
    return lambda b, left, right: binary(b, kind, left, right)


def _compared(kind: str) -> Primitive[Var]:
    """MIL compares no booleans."""

    def write(b: ProgramBuilder, left: Var, right: Term) -> Var:
        if datatype_of(left) is DataType.BOOL:
            left = b.cast(left, DataType.INT32)
            right = float(right) if isinstance(right, int | float) else b.cast(right, DataType.INT32)
        return binary(b, kind, left, right)

    return write


def _reduced(kind: str) -> Primitive[Var]:
    return lambda b, x, axes, keep: b.call(f"reduce_{kind}", x=x, axes=numbers(axes), keep_dims=keep)


def _places(b: ProgramBuilder, x: Var, axis: int) -> Var:
    order = torch.arange(x.shape[axis]).reshape([-1 if at == axis else 1 for at in range(len(x.shape))])
    return expanded(b, b.constant(order), x.shape)


def _hardsigmoid(b: ProgramBuilder, x: Var) -> Var:
    datatype = datatype_of(x)
    return b.call("sigmoid_hard", x=x, alpha=b.number(1 / 6, datatype), beta=b.number(0.5, datatype))


_DIGITS: Final = {DataType.FLOAT32: 24, DataType.FLOAT16: 11, DataType.BOOL: -1}

#: MIL's operations by the names of the compositions.
DIALECT: Final[Dialect[Var]] = Dialect(
    {
        **{
            name: _two(kind)
            for name, kind in {
                **{name: name for name in ("add", "sub", "mul", "minimum", "maximum", "pow")},
                "div": "real_div",
                "floor_divide": "floor_div",
                "and": "logical_and",
                "or": "logical_or",
                "xor": "logical_xor",
            }.items()
        },
        **{
            name: _compared(kind)
            for name, kind in {
                "eq": "equal",
                "ne": "not_equal",
                "lt": "less",
                "le": "less_equal",
                "gt": "greater",
                "ge": "greater_equal",
            }.items()
        },
        **{
            name: _one(name)
            for name in (
                *("abs", "acos", "asin", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "exp2", "floor"),
                *("round", "sigmoid", "sign", "silu", "sin", "sinh", "sqrt", "tan", "tanh"),
            )
        },
        "not": _one("logical_not"),
        "smooth_relu": _one("softplus"),
        "neg": lambda b, x: binary(b, "mul", x, -1),
        "log": without_epsilon("log"),
        "rsqrt": without_epsilon("rsqrt"),
        "truth": lambda b, x: b.cast(x, DataType.BOOL),
        "hardsigmoid": _hardsigmoid,
        "clamp": clamp,
        "relu": lambda b, x: clamp(b, x, 0, None),
        "where": where,
        "slice": sliced,
        "concat": concatenated,
        "insert": lambda b, x, axis: b.call("expand_dims", x=x, axes=numbers([axis])),
        "drop": lambda b, x, axes: b.call("squeeze", x=x, axes=numbers(axes)),
        "places": _places,
        "integers": lambda b, x: b.cast(x, DataType.INT32),
        **{f"reduce_{name}": _reduced(name) for name in ("sum", "mean", "max", "min", "l2_norm")},
    },
    lambda x: _DIGITS.get(datatype_of(x), 0),
)


#: Of two values, of which one may be a Python number.
add, sub, mul, div = (DIALECT.primitives[name] for name in ("add", "sub", "mul", "div"))


def _size(b: ProgramBuilder, size: Any, call: Call) -> Var:
    wanted = b.result_type(call)
    return b.cast(b.size(size), wanted if wanted.is_float else datatype_of(tensor(b, call)))


#: An argument for a composition.
number: Final = arguments(DIALECT, lambda b, value, call: b.cast(value, b.result_type(call)), _size)


def copied(b: ProgramBuilder, value: Var) -> Var:
    """The same numbers as a value of its own."""
    return b.call("identity", x=value)


#: Makes a lowering function of a composition: its operands, and arguments that it takes as they are.
composed: Final = functools.partial(lowering, argument=number, copied=copied)

# -- constraints -------------------------------------------------------------------------------------------------------

REAL: Final = dtypes(*FLOATS)
NUMBERS: Final = dtypes(*FLOATS, *INTEGERS)
ANY: Final = dtypes(*FLOATS, *INTEGERS, "bool")


def reduced(b: ProgramBuilder, kind: str, x: Var, axes: tuple[int, ...], *, keep: bool = True) -> Var:
    """A reduction along axes, which stay with size 1 if `keep` says so."""
    return b.call(kind, x=x, axes=numbers(axes), keep_dims=keep) if axes else x


def largest_sizes(b: ProgramBuilder, x: Var, axes: tuple[int, ...]) -> Var:
    """The largest absolute numbers along axes, which stay with size 1: divisors, none of which is 0."""
    return clamp(b, reduced(b, "reduce_max", unary(b, "abs", x), axes), LEAST_DIVISOR, None)


def from_front(b: ProgramBuilder, operand: Operand, size: Expression) -> Var:
    """Indices counted from the front: MIL from iOS 17 on knows no others."""
    known = operand.constant
    if known is not None and (isinstance(size, int) or not bool((known < 0).any())):
        return b.constant(torch.where(known < 0, known + size, known) if isinstance(size, int) else known)
    indices = b.value(operand)
    is_front = binary(b, "greater_equal", indices, 0)
    return where(b, is_front, indices, add(b, indices, size if isinstance(size, int) else b.size(size)))


def places_of(b: ProgramBuilder, x: Var, found: dict[int, Operand]) -> tuple[Var, list[int], tuple[int, ...]]:
    """Places along several axes as rows of a tensor, x's axes with these in front, and the shape of the indices."""
    order = [*found, *(axis for axis in range(len(x.shape)) if axis not in found)]
    shape = broadcast(*(sizes_of(index.shape) for index in found.values()))
    parts = [expanded(b, from_front(b, index, x.shape[axis]), shape) for axis, index in found.items()]
    return b.call("stack", values=parts, axis=numbers([len(shape)])[0]), order, shape
