"""Operators that write elements to places that other tensors name: scatter, index_put, masked_scatter."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.narrowing import narrow_product, narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of, numbers
from ..ir.types import MOST_AXES, DataType
from ..targets import IOS18
from .common import (
    ANY,
    FLOATS,
    INTEGERS,
    add,
    binary,
    div,
    expanded,
    from_front,
    mul,
    places_of,
    reshaped,
    sliced,
    sub,
    tensor,
    updated,
    where,
)
from .program import Lower, ProgramBuilder

#: How PyTorch calls the ways to join what is written with what is there -> MIL's.
_MODES: Final = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}
#: What changes nothing in each of MIL's ways.
_NEUTRAL: Final = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
_INT32: Final = torch.iinfo(torch.int32)


def order_of_writes(call: Call) -> str:
    """Arguments whose results are not PyTorch's."""
    return "of several numbers for one place, any may stay"


# -- along an axis -----------------------------------------------------------------------------------------------------


def _written(b: ProgramBuilder, call: Call, data: Var, source: Var, mode: str) -> Var:
    """Data with a source, of the index's shape, at the index's places along the axis. MIL writes no booleans."""
    datatype = datatype_of(data)
    if datatype is DataType.BOOL:
        data, source = (b.cast(item, DataType.INT32) for item in (data, source))
    index, shape = tensor(b, call, "index"), tuple(data.shape)
    axis = axis_of(call["dim"], len(shape))
    same = all(size == shape[other] for other, size in enumerate(index.shape) if other != axis)
    if same:
        along = numbers([axis])[0]
        made = b.call("scatter_along_axis", data=data, indices=index, updates=source, axis=along, mode=mode)
    else:
        made = _flat_write(b, data, _flat_places(b, index, shape, axis), source, mode)
    return b.cast(made, datatype)


def _flat_places(b: ProgramBuilder, index: Var, shape: tuple[int, ...], axis: int) -> Var:
    """The flat positions of an index into part of a tensor."""
    steps = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    base = torch.zeros(tuple(index.shape), dtype=torch.int64)
    for other, size in enumerate(index.shape):
        if other != axis:
            places = torch.arange(size) * steps[other]
            base += places.reshape([-1 if at == other else 1 for at in range(len(shape))])
    return add(b, mul(b, index, steps[axis]), b.constant(base))


def _flat_write(b: ProgramBuilder, data: Var, places: Var, source: Var, mode: str) -> Var:
    """Elements at places among all elements."""
    flat, at, updates = (reshaped(b, item, (math.prod(item.shape),)) for item in (data, places, source))
    made = b.call("scatter", data=flat, indices=at, updates=updates, mode=mode)
    return reshaped(b, made, data.shape)


def _source(b: ProgramBuilder, call: Call) -> Var:
    """The values to write, cut to the size of the index; PyTorch accepts more."""
    value = call["src"] if call.has("src") else call["value"]
    if not isinstance(value, Operand):
        number = b.number(value, datatype_of(tensor(b, call)))
        return b.call("fill", shape=numbers(call["index"].shape), value=number)
    source = b.value(value)
    for axis, size in enumerate(call["index"].shape):
        source = sliced(b, source, axis, 0, size)
    return source


def _scatter(b: ProgramBuilder, call: Call) -> Var:
    mode = _MODES[call["reduce"]] if call.has("reduce") else "update"
    return _written(b, call, tensor(b, call), _source(b, call), mode)


def _scatter_add(b: ProgramBuilder, call: Call) -> Var:
    return _written(b, call, tensor(b, call), _source(b, call), "add")


def _scatter_reduce(b: ProgramBuilder, call: Call) -> Var:
    """Old values count with include_self only; else they stay where nothing is written."""
    x, source, reduce = tensor(b, call), _source(b, call), call["reduce"]
    mode, datatype = _MODES[reduce], datatype_of(x)
    if call["include_self"] and reduce != "mean":
        return _written(b, call, x, source, mode)
    zeros, ones = (
        b.call("fill", shape=numbers(item.shape), value=b.number(value, DataType.INT32))
        for item, value in ((x, 0), (source, 1))
    )
    counts = _written(b, call, zeros, ones, "add")
    if call["include_self"]:
        counts = add(b, counts, 1)
    else:
        x = where(b, binary(b, "greater", counts, 0), _neutral(mode, datatype), x)
    found = _written(b, call, x, source, mode)
    return div(b, found, b.cast(binary(b, "maximum", counts, 1), datatype)) if reduce == "mean" else found


def _neutral(mode: str, datatype: DataType) -> float:
    value = _NEUTRAL[mode]
    if datatype.is_float or math.isfinite(value):
        return value
    return _INT32.min if value < 0 else _INT32.max


def known_ways(call: Call) -> str | None:
    """Means are of floating-point numbers."""
    reduce = call["reduce"]
    if reduce == "mean" and call["self"].dtype_name not in FLOATS:
        return "a mean of integers"
    return narrow_product(call) if reduce in ("prod", "multiply") else None


def same_axes(call: Call) -> str | None:
    """self and index have axes."""
    return has_axes("self")(call) or has_axes("index")(call)


# -- at places of several axes -----------------------------------------------------------------------------------------


def places_or_mask(call: Call) -> str | None:
    """Integers whose axes and self's others (1 at least) are at most 5; or a mask with one value. No sums of bool."""
    found = indices_of(call)
    if any(item.dtype_name == "bool" for item in found.values()):
        one_value = math.prod(call["values"].shape) == 1
        if len(found) > 1 or not one_value or call["accumulate"]:
            return "a mask with several values, or beside other indices: how many are written depends on the mask"
        return None
    axes, others = max(item.rank for item in found.values()), call["self"].rank - len(found)
    if axes + max(others, 1) > MOST_AXES:
        return f"indices of {axes} axes beside {others} without: what is written has at most {MOST_AXES}"
    if call["accumulate"] and call["self"].dtype_name == "bool":
        return "booleans are accumulated"
    return None


def _index_put(b: ProgramBuilder, call: Call) -> Var:
    found = indices_of(call)
    if any(item.dtype_name == "bool" for item in found.values()):
        return _put_at_mask(b, call, found)
    x, values = tensor(b, call), tensor(b, call, "values")
    datatype = datatype_of(x)
    if datatype is DataType.BOOL:
        x, values = (b.cast(item, DataType.INT32) for item in (x, values))
    is_row = len(found) == 1 and math.prod(next(iter(found.values())).shape) == 1
    if is_row and not call["accumulate"] and b.target >= IOS18:
        return b.cast(_put_slice(b, x, values, *found.items()), datatype)
    places, order, shape = places_of(b, x, found)
    updates = _updates(b, values, tuple(x.shape), found, shape)
    moved = order != sorted(order)
    if moved:
        x = b.call("transpose", x=x, perm=numbers(order))
    mode = "add" if call["accumulate"] else "update"
    made = b.call("scatter_nd", data=x, indices=places, updates=updates, mode=mode)
    if moved:
        made = b.call("transpose", x=made, perm=numbers([order.index(axis) for axis in range(len(order))]))
    return b.cast(made, datatype)


def _put_slice(b: ProgramBuilder, x: Var, values: Var, place: tuple[int, Operand]) -> Var:
    """Overwrites the slice that one index names along an axis, as a row of a cache."""
    axis, index = place
    sizes = tuple(x.shape)
    source = expanded(b, values, (*sizes[:axis], *index.shape, *sizes[axis + 1 :]))
    start = reshaped(b, from_front(b, index, sizes[axis]), (1,))
    return updated(b, x, axis, start, add(b, start, 1), reshaped(b, source, (*sizes[:axis], 1, *sizes[axis + 1 :])))


def _updates(
    b: ProgramBuilder, values: Var, sizes: tuple[int, ...], found: dict[int, Operand], shape: tuple[int, ...]
) -> Var:
    """The values as PyTorch broadcasts them, with the axes of the indices in front."""
    rest = [size for axis, size in enumerate(sizes) if axis not in found]
    first = axis_of_indices(found)
    values = expanded(b, values, (*rest[:first], *shape, *rest[first:]))
    axes = range(len(values.shape))
    order = [*axes[first : first + len(shape)], *axes[:first], *axes[first + len(shape) :]]
    return b.call("transpose", x=values, perm=numbers(order)) if order != sorted(order) else values


def _put_at_mask(b: ProgramBuilder, call: Call, found: dict[int, Operand]) -> Var:
    """One value wherever a mask holds."""
    x = tensor(b, call)
    ((axis, operand),) = found.items()
    mask = b.value(operand)
    shape = [1] * axis + list(mask.shape) + [1] * (len(x.shape) - axis - len(mask.shape))
    mask = expanded(b, reshaped(b, mask, shape), x.shape)
    value = expanded(b, reshaped(b, tensor(b, call, "values"), ()), x.shape)
    return where(b, mask, value, x)


def _put(b: ProgramBuilder, call: Call) -> Var:
    x, source = tensor(b, call), tensor(b, call, "source")
    datatype = datatype_of(x)
    if datatype is DataType.BOOL:
        x, source = (b.cast(item, DataType.INT32) for item in (x, source))
    places = from_front(b, call["index"], math.prod(x.shape))
    return b.cast(_flat_write(b, x, places, source, "add" if call["accumulate"] else "update"), datatype)


def _masked_scatter(b: ProgramBuilder, call: Call) -> Var:
    """The n-th element of the source at the n-th place where the mask holds."""
    shape = call.result.shape
    x, mask = (expanded(b, tensor(b, call, name), shape) for name in ("self", "mask"))
    source = tensor(b, call, "source")
    datatype = datatype_of(x)
    if datatype is DataType.BOOL:
        x, source = (b.cast(item, DataType.INT32) for item in (x, source))
    flat = reshaped(b, b.cast(mask, DataType.INT32), (math.prod(shape),))
    order = sub(b, b.call("cumsum", x=flat), 1)
    count = math.prod(source.shape)
    order = binary(b, "minimum", binary(b, "maximum", order, 0), count - 1)
    taken = b.call("gather", x=reshaped(b, source, (count,)), indices=order)
    return b.cast(where(b, mask, reshaped(b, taken, shape), x), datatype)


def sums_of_truths(call: Call) -> str | None:
    """No sums of booleans."""
    return "booleans are added" if call["self"].dtype_name == "bool" and _adds(call) else None


def _adds(call: Call) -> bool:
    return call.operator == "aten.scatter_add.default" or bool(call.get("accumulate", False)) or call.has("reduce")


_TYPED: Final = types_of("self", *FLOATS, *INTEGERS, "bool")
_STATIC: Final[dict[str, Any]] = {"static_only": True}

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("scatter.src scatter.value", _scatter, ANY, same_axes, special_values=order_of_writes, **_STATIC),
    row("scatter.reduce scatter.value_reduce", _scatter, ANY, same_axes, known_ways, sums_of_truths, **_STATIC),
    row("scatter_add.default", _scatter_add, ANY, same_axes, sums_of_truths, special_values=narrowed, **_STATIC),
    row(
        "scatter_reduce.two",
        _scatter_reduce,
        ANY,
        same_axes,
        known_ways,
        sums_of_truths,
        special_values=narrowed,
        **_STATIC,
    ),
    row("index_put.default", _index_put, _TYPED, places_or_mask, special_values=order_of_writes, **_STATIC),
    row("put.default", _put, _TYPED, sums_of_truths, special_values=order_of_writes, **_STATIC),
    row("masked_scatter.default", _masked_scatter, _TYPED, **_STATIC),
)
