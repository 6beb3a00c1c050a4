"""Reductions along axes, softmax, running sums, and the order of elements."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axes_of, axis_of
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Encoding, Scalar, Tensor, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, NUMBERS, REAL, has_axes, operand
from .elementwise import truth
from .program import Lower, ProgramBuilder


def _flag(value: object) -> Scalar:
    return Scalar(DataType.BOOL, bool(value))


def reduced(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    axes: tuple[int, ...],
    keep: bool,
    result: tuple[DataType, Encoding | None],
) -> Value:
    """A value reduced along some of the program's axes."""
    stored = sorted(x.stored_axis(axis) for axis in axes)
    shape = [1 if place in stored else size for place, size in enumerate(x.tensor.shape)]
    made = b.emit(kind, [x.tensor], shape, *result, axes=uint32(*stored), keep_dims=_flag(True))
    if keep:
        return Value(made, x.order)
    order = tuple(axis for axis in x.order if axis not in axes)
    kept = [size for place, size in enumerate(shape) if place not in stored]
    ranks = tuple(sorted(order).index(axis) for axis in order)
    return Value(b.reshaped(made, kept), ranks)


def _reduction(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = operand(b, call)
        axes = axes_of(call.get("dim"), x.rank)
        if not x.rank:
            return x
        return reduced(b, kind, x, axes, bool(call.get("keepdim", False)), b.result_type(call))

    return lower


def _position(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        dim = call["dim"]
        if dim is None:
            x = Value(b.reshaped(b.dense(x), (x.tensor.data.size if x.tensor.data is not None else _count(x),)), (0,))
        axis = 0 if dim is None else axis_of(dim, x.rank)
        tensor = b.dense(x)
        shape = [1 if place == axis else size for place, size in enumerate(tensor.shape)]
        made = b.emit(kind, [tensor], shape, DataType.INT32, axis=Scalar(DataType.UINT32, axis), keep_dims=_flag(True))
        result = tuple(call.result.shape)
        return Value(b.reshaped(made, result), tuple(range(len(result))))

    return lower


def _count(x: Value) -> int:
    count = 1
    for size in x.tensor.shape:
        count *= size
    return count


def _softmax(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        axis = axis_of(call["dim"], x.rank)
        last = (*(item for item in range(x.rank) if item != axis), axis)
        tensor = x.tensor if x.order[-1] == axis else b.stored(x, last)
        order = x.order if x.order[-1] == axis else last
        datatype, encoding = b.result_type(call)
        made = b.emit(
            kind,
            [tensor],
            tensor.shape,
            datatype,
            encoding,
            axis=Scalar(DataType.UINT32, len(order) - 1),
            beta=Scalar(DataType.FLOAT32, 1.0),
        )
        return Value(made, order)

    return lower


def _running_sum(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    place = x.stored_axis(axis_of(call["dim"], x.rank))
    made = b.like(
        "CumulativeSum",
        x.tensor,
        axis=Scalar(DataType.UINT32, place),
        exclusive=_flag(False),
        reverse=_flag(False),
    )
    return Value(made, x.order)


def _largest(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    x = b.activation(call["self"])
    axis = axis_of(call["dim"], x.rank)
    last = (*(item for item in range(x.rank) if item != axis), axis)
    tensor = b.stored(x, last)
    k = call["k"]
    shape = (*tensor.shape[:-1], k)
    found = b.emit_all(
        "TopK",
        [tensor],
        [Tensor(shape, tensor.datatype, tensor.encoding), Tensor(shape, DataType.INT32)],
        k=Scalar(DataType.UINT32, k),
        largest=_flag(call["largest"]),
    )
    return Value(found[0], last), Value(found[1], last)


def _truth_along(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = truth(b, b.value(call["self"]))
        if not x.rank:
            return x
        numbers = Value(b.cast(x.tensor, DataType.FLOAT32), x.order)
        axes = axes_of(call.get("dim"), x.rank)
        found = reduced(b, kind, numbers, axes, bool(call.get("keepdim", False)), (DataType.FLOAT32, None))
        return truth(b, found)

    return lower


_AXES: Final = has_axes("self")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction("ReduceMean"), REAL, fixed=True),
    row("sum.dim_IntList", _reduction("ReduceSum"), REAL, fixed=True),
    row("amax.default", _reduction("ReduceMax"), REAL, fixed=True),
    row("amin.default", _reduction("ReduceMin"), REAL, fixed=True),
    row("any.default any.dim any.dims", _truth_along("ReduceMax"), ANY),
    row("all.default all.dim all.dims", _truth_along("ReduceMin"), ANY),
    row("argmax.default", _position("Argmax"), REAL, _AXES, fixed=True),
    row("argmin.default", _position("Argmin"), REAL, _AXES, fixed=True),
    row("_softmax.default", _softmax("Softmax"), REAL, _AXES, fixed=True),
    row("_log_softmax.default", _softmax("LogSoftmax"), REAL, _AXES, fixed=True),
    row("cumsum.default", _running_sum, NUMBERS, _AXES),
    row("topk.default", _largest, REAL, _AXES),
)
