"""Operators that look elements up at computed positions. Indices out of range are reported to the host."""

from __future__ import annotations

import math
from typing import Final

from ...ir.types import DataType
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import padded, strides
from ..tape import Tape


def _embedding(tape: Tape, call: Reader) -> None:
    weight, indices = call.tensor(0, 2), call.tensor(1)
    shape = (*indices.shape, weight.shape[1])
    _rows(tape, call, weight, 0, indices, tape.result(call.result, shape), negative=False)


def _index_select(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    if not value.rank:
        raise call.error("selects from a number")
    _selected(tape, call, value, call.axis(1, value.rank), call.tensor(2, 0, 1))


def _index(tape: Tape, call: Reader) -> None:
    value, indices = call.tensor(0), call.optional_tensors(1)
    found = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(found) != 1 or found[0][0] >= value.rank:
        raise call.error(f"indexes {len(found)} of {value.rank} axes: one is taken")
    axis, index = found[0]
    if index.datatype is DataType.BOOL:
        raise call.error("is indexed by booleans")
    shape = (*value.shape[:axis], *index.shape, *value.shape[axis + 1 :])
    _rows(tape, call, value, axis, index, tape.result(call.result, shape), negative=True)


def _selected(tape: Tape, call: Reader, value: Value, axis: int, index: Value) -> None:
    shape = (*value.shape[:axis], index.count, *value.shape[axis + 1 :])
    _rows(tape, call, value, axis, index, tape.result(call.result, shape), negative=False)


def _rows(tape: Tape, call: Reader, value: Value, axis: int, index: Value, target: Value, *, negative: bool) -> None:
    _check(call, value, index, target, value.shape[axis])
    inner, count = math.prod(value.shape[axis + 1 :]), target.count
    wide = inner % 4 == 0
    if wide:
        inner, count = inner // 4, count // 4
    push = [count, value.shape[axis], inner, index.count, tape.call + 1]
    constants = (target.is_half, wide, negative)
    tape.dispatch("rows", (value, index, target, tape.fault), push, constants, items=count, written=2)


def _gather(tape: Tape, call: Reader) -> None:
    value, index = call.tensor(0), call.tensor(2)
    axis = call.axis(1, value.rank)
    if index.rank != value.rank or any(size > value.shape[at] for at, size in enumerate(index.shape) if at != axis):
        raise call.error(f"gathers from {value.shape} at indices of the shape {index.shape}")
    target = tape.result(call.result, index.shape)
    _check(call, value, index, target, value.shape[axis] if value.rank else 1)
    own = list(strides(value.shape))
    step, own[axis : axis + 1] = (own[axis], [0]) if value.rank else (0, [])
    size = value.shape[axis] if value.rank else 1
    push = [target.count, size, step, *padded(index.shape), *padded(own), tape.call + 1]
    buffers = (value, index, target, tape.fault)
    tape.dispatch("gather", buffers, push, (target.is_half, value.rank), items=target.count, written=2)


def _check(call: Reader, value: Value, index: Value, target: Value, size: int) -> None:
    if index.is_float or target.is_float != value.is_float:
        raise call.error("has indices or a result of the wrong kind")
    if size < 1 and target.count:
        raise call.error(f"looks elements up in {value.shape}, which has none")


KERNELS: Final[dict[str, Kernel]] = {
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten.gather.default": _gather,
}
