"""Operators that write elements to places that other tensors name: scatter, index_put."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.narrowing import narrow_product, narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed
from .common import (
    INTEGERS,
    MOVED,
    NUMBERS,
    expanded,
    from_front,
    inside,
    integer_indices,
    places_of,
    tensor,
    transposed,
)

#: PyTorch's names of the ways to join what is written with what is there -> OpenVINO's.
_MODES: Final = {
    "sum": "sum",
    "add": "sum",
    "mean": "mean",
    "prod": "prod",
    "multiply": "prod",
    "amax": "max",
    "amin": "min",
}


def order_of_writes(call: Call) -> str:
    """Arguments whose results are not PyTorch's."""
    return "; ".join(filter(None, ("of several numbers for one place, any may stay", narrowed(call))))


def _written(mode: str | None = None) -> Lower:
    """Data with a source at the index's places along an axis."""

    def lower(b: ModelBuilder, call: Call) -> Value:
        x = tensor(b, call)
        size = x.shape[axis_of(call["dim"], x.rank)]
        index = inside(b, tensor(b, call, "index"), call["index"], size)
        reduction = mode or (_MODES[call["reduce"]] if call.has("reduce") else "none")
        with_initial = bool(call["include_self"]) if call.has("include_self") else True
        if call.has("src"):
            source = tensor(b, call, "src")
            start, stop = [0] * index.rank, [int(size) for size in index.shape if size is not None]
            if source.shape != index.shape:
                axes, steps = b.integers(range(index.rank)), b.integers([1] * index.rank)
                source = b.op("slice", source, b.integers(start), b.integers(stop), steps, axes)
        else:
            source = expanded(b, b.number(call["value"], x.dtype), index.shape)
        made = b.op(
            "scatter_elements_update",
            x,
            index,
            source,
            b.scalar(axis_of(call["dim"], x.rank)),
            reduction=reduction,
            use_init_val=with_initial,
        )
        return b.declare(made, x.shape)

    return lower


def fixed_index(call: Call) -> str | None:
    """The index has axes and fixed sizes; its rank is the tensor's."""
    index = call["index"]
    if index.rank != call["self"].rank or not all(map(is_fixed, index.shape)):
        return f"an index {index.shape} for {call['self'].shape}"
    return None


def known_mode(call: Call) -> str | None:
    """What is written replaces what is there, or is joined with it; an average of floating-point numbers."""
    mode = call["reduce"]
    if mode not in _MODES:
        return f"reduce = {mode!r}"
    return "an average of integers" if mode == "mean" and call["self"].dtype_name in INTEGERS else None


def _index_put(b: ModelBuilder, call: Call) -> Value:
    """Rows at places along several axes, which are moved to the front and back."""
    x, found = tensor(b, call), indices_of(call)
    ((axis, index), *others) = found.items()
    if index.rank and not others and not call["accumulate"]:
        return _rows_put(b, call, x, axis, index)
    places, order, shape = places_of(b, x, found)
    front = transposed(b, x, order)
    rest = [x.shape[axis] for axis in order[len(found) :]]
    before = axis_of_indices(found)
    axes = [*range(before, before + len(shape)), *range(before), *range(before + len(shape), len(shape) + len(rest))]
    source = expanded(b, tensor(b, call, "values"), [*rest[:before], *shape, *rest[before:]])
    reduction = "sum" if call["accumulate"] else "none"
    made = b.op("scatter_nd_update", front, places, transposed(b, source, axes), reduction=reduction)
    back = [order.index(axis) for axis in range(x.rank)]
    return transposed(b, b.declare(made, front.shape), back)


def _rows_put(b: ModelBuilder, call: Call, x: Value, axis: int, index: Operand) -> Value:
    """Rows at places along one axis, which need not move to the front: of a cache, that would copy all of it twice."""
    places = from_front(b, index, x.shape[axis])
    source = expanded(b, tensor(b, call, "values"), [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])
    return b.declare(b.op("scatter_update", x, places, source, b.scalar(axis)), x.shape)


def any_axes(call: Call) -> str | None:
    """Some axes are indexed."""
    return None if indices_of(call) else "no axes are indexed"


_ALONG: Final = (has_axes("self"), has_axes("index"), fixed_index)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("scatter.src", _written(), MOVED, *_ALONG, passenger=True, special_values=order_of_writes),
    row("scatter.value", _written(), MOVED, *_ALONG, passenger=True, special_values=order_of_writes),
    row("scatter_add.default", _written("sum"), NUMBERS, *_ALONG, special_values=order_of_writes),
    row(
        "scatter_reduce.two",
        _written(),
        NUMBERS,
        *_ALONG,
        known_mode,
        narrow_product,
        keep=True,
        special_values=order_of_writes,
    ),
    row(
        "index_put.default",
        _index_put,
        NUMBERS,
        integer_indices,
        any_axes,
        passenger=True,
        special_values=order_of_writes,
    ),
)
