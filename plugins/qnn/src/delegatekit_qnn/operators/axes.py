"""Operators along one axis: places of the largest and least, softmax, running sums."""

from __future__ import annotations

import math
from typing import Final, cast

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.narrowing import may_be_large, narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.encodings import made_as
from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, INTEGERS, REAL, as_numbers, operand, sub, unary
from .dialect import DIALECT, composed_along, exponential
from .program import Lower, ProgramBuilder
from .reductions import EQUAL, around, flag, halved, reduced, rows_of_last


def position(b: ProgramBuilder, kind: str, x: Value, axis: int, keep: bool) -> Value:
    """The position of the maximum or minimum along an axis."""
    if kind == "Argmin" and x.tensor.datatype is DataType.INT32:
        kind, x = "Argmax", sub(b, -1, x)
    tensor = b.dense(x)
    shape = tensor.shape
    parts = around(shape, axis) if len(shape) > 4 else list(shape)
    place = 1 if len(shape) > 4 else axis
    found = [1 if at == place else size for at, size in enumerate(parts)]
    made = b.emit(
        kind,
        [b.reshaped(tensor, parts)],
        found,
        DataType.INT32,
        axis=Scalar(DataType.UINT32, place),
        keep_dims=flag(True),
    )
    kept = [1 if at == axis else size for at, size in enumerate(shape)]
    result = kept if keep else [size for at, size in enumerate(kept) if at != axis]
    return Value(b.reshaped(made, result), identity(len(result)))


def _position(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        if call["dim"] is not None:
            return position(b, kind, x, axis_of(call["dim"], x.rank), bool(call["keepdim"]))
        flat = Value(b.reshaped(b.dense(x), (math.prod(x.shape),)), (0,))
        found = position(b, kind, flat, 0, True)
        shape = tuple(call.result.shape)
        return Value(b.reshaped(found.tensor, shape), identity(len(shape)))

    return lower


def _extreme(kind: str) -> Lower:
    """The largest or least number along an axis, and where it is."""
    pairwise = "ElementWiseMaximum" if kind == "Max" else "ElementWiseMinimum"

    def lower(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
        x = b.activation(call["self"])
        axis, keep = axis_of(call["dim"], x.rank), bool(call["keepdim"])
        if x.tensor.datatype.is_float or x.is_fixed:
            found = reduced(b, f"Reduce{kind}", x, (axis,), keep, b.result_type(call))
        else:
            found = halved(b, pairwise, x, (axis,), keep)
        return found, position(b, f"Arg{kind.lower()}", x, axis, keep)

    return lower


def _below_largest(b: ProgramBuilder, x: Value, axis: int) -> Value:
    """Floats less the largest along an axis, as an exponential wants them: the processor's softmax of large numbers is
    inexact."""
    return sub(b, x, reduced(b, "ReduceMax", x, (axis,), True, (DataType.FLOAT32, None)))


def _softmax(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        axis = axis_of(call["dim"], x.rank)
        x = x if x.is_fixed else _below_largest(b, x, axis)
        last = (*(item for item in range(x.rank) if item != axis), axis)
        tensor = x.tensor if x.order[-1] == axis else b.stored(x, last)
        order = x.order if x.order[-1] == axis else last
        datatype, encoding = b.result_type(call)
        rows = rows_of_last(tensor.shape) if len(order) > 4 else tensor.shape
        made = b.emit(
            kind,
            [b.reshaped(tensor, rows)],
            rows,
            datatype,
            encoding,
            axis=Scalar(DataType.UINT32, len(rows) - 1),
            beta=Scalar(DataType.FLOAT32, 1.0),
        )
        return Value(b.reshaped(made, tensor.shape), order)

    return lower


#: So many steps of a result of 8 bits a step of the input may be: from about ten on, the library's logarithm is 0.
_STEPS: Final = 8


def _one_vector(call: Call) -> str | None:
    """On integers a logarithm of a softmax has 64 elements at most: of more, the library's own may be wrong.

    Of 8 bits it is also wrong where a step of the input is many of the result: numbers all far from zero, near each
    other.
    """
    x = call["self"]
    count = x.shape[axis_of(call["dim"], x.rank)]
    if count > 64:
        return f"{count} elements: 64 are taken on integers"
    found, made = x.quantization, made_as(call.result)
    if found is None or made is None or made.dtype.itemsize > 1:
        return None
    steps = float(found.scale) / float(made.scale)
    return f"a step of the input is {steps:.3g} of the result: {_STEPS} are taken" if steps > _STEPS else None


def _log_softmax(b: ProgramBuilder, call: Call) -> Value:
    """Of floats by its parts: the library's own is wrong for 65, 129, 193 ... elements, and subtracts the largest
    number only after it has added the logarithm, which large numbers swallow."""
    x = b.activation(call["self"])
    if x.is_fixed:
        return cast("Value", _softmax("LogSoftmax")(b, call))
    axis = axis_of(call["dim"], x.rank)
    x = _below_largest(b, x, axis)
    total = reduced(b, "ReduceSum", exponential(b, x), (axis,), True, (DataType.FLOAT32, None))
    return sub(b, x, unary(b, "ElementWiseLog", total))


#: So many floats are added one after the other: the processor adds in float16, to which 2048 + 1 is 2048.
_IN_A_ROW: Final = 128


def _running_sum(b: ProgramBuilder, call: Call) -> Value:
    x = as_numbers(b, operand(b, call))
    axis = axis_of(call["dim"], x.rank)
    inexact = x.shape[axis] > _IN_A_ROW if x.tensor.datatype.is_float else may_be_large(call["self"])
    if inexact:
        return along.cumsum(DIALECT.number(b, x), axis).value
    place = x.stored_axis(axis)
    shape = x.tensor.shape
    parts = around(shape, place) if len(shape) > 4 else shape
    made = b.like(
        "CumulativeSum",
        b.reshaped(x.tensor, parts),
        axis=Scalar(DataType.UINT32, 1 if len(shape) > 4 else place),
        exclusive=flag(False),
        reverse=flag(False),
    )
    return Value(b.reshaped(made, shape), x.order)


def several_elements(call: Call) -> str | None:
    """The axis has several elements: of one the places are constant, and a delegate reads its inputs."""
    size = call["self"].shape[axis_of(call["dim"], call["self"].rank)]
    return None if size > 1 else "the axis has one element"


def few_places(call: Call) -> str | None:
    """Along an axis of at most 32768 elements: of equal ones farther apart the library tells the last, or neither."""
    shape, dim = call["self"].shape, call["dim"]
    size = math.prod(shape) if dim is None else shape[axis_of(dim, call["self"].rank)]
    return None if size <= _PLACES else f"the place among {size} elements: {_PLACES} are the most"


#: Places of equal elements are compared as integers of 16 bits.
_PLACES: Final = 1 << 15
_AXES: Final = has_axes("self")
_NUMBERS: Final = types_of("self", "float32", *INTEGERS)
_RECORDS: Final = types_of("self", "float32", *INTEGERS, "bool")
ROWS: Final[tuple[Row[Lower], ...]] = (
    row("max.dim", _extreme("Max"), _NUMBERS, _AXES, few_places, special_values=EQUAL),
    row("min.dim", _extreme("Min"), _NUMBERS, _AXES, few_places, special_values=EQUAL),
    row("argmax.default", _position("Argmax"), _NUMBERS, _AXES, few_places, fixed=True, special_values=EQUAL),
    row("argmin.default", _position("Argmin"), _NUMBERS, _AXES, few_places, fixed=True, special_values=EQUAL),
    row(
        "cummax.default",
        composed_along(along.cummax, arguments="dim"),
        _RECORDS,
        _AXES,
        several_elements,
        special_values=EQUAL,
    ),
    row(
        "cummin.default",
        composed_along(along.cummin, arguments="dim"),
        _RECORDS,
        _AXES,
        several_elements,
        special_values=EQUAL,
    ),
    row("_softmax.default", _softmax("Softmax"), REAL, _AXES, fixed=True),
    row("_log_softmax.default", _log_softmax, REAL, _AXES, fixed=_one_vector),
    row("cumsum.default", _running_sum, ANY, _AXES, special_values=narrowed),
)
