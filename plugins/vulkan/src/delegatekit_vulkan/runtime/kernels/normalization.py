"""Softmax, and normalization of rows and groups."""

from __future__ import annotations

import math
from typing import Final

from ...ir.types import DataType
from ...shaders.numbers import Reduce
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import tape_error
from ..tape import Tape
from .reduction import LONGEST, Reduction, part_length, reduce_axis
from .shape import fill


def _softmax(*, logarithm: bool) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        axis = call.axis(1, value.rank)
        target = tape.result(call.result, value.shape)
        _check_floats(call, value, target)
        shape = value.shape or (1,)
        softmax(tape, value, target, shape[axis], math.prod(shape[axis + 1 :]), logarithm=logarithm)

    return kernel


def softmax(
    tape: Tape,
    value: Value,
    target: Value,
    size: int,
    inner: int,
    *,
    logarithm: bool = False,
    causal: tuple[int, int] | None = None,
) -> None:
    """Softmax along an axis of `size` elements with the stride `inner`.

    `causal` is the position of the first row, and the number of consecutive rows: a row attends to no later positions.
    """
    rows = value.count // size if size else 0
    if part_length(rows, size) < size and causal is None:
        _long_softmax(tape, value, target, size, inner, logarithm=logarithm)
        return
    if size > LONGEST:
        raise tape_error(tape, f"attends to {size} positions: {LONGEST} are the most")
    first, positions = causal or (0, 1)
    constants = (
        target.is_half,
        inner == 1 and size % 4 == 0 and causal is None,
        logarithm,
        causal is not None,
    )
    tape.dispatch("softmax", (value, target), (rows, size, inner, first, positions), constants, items=rows)


def _long_softmax(tape: Tape, value: Value, target: Value, size: int, inner: int, *, logarithm: bool) -> None:
    """In steps that share the work of a row."""
    rows = value.count // size
    sizes = (rows // inner, size, inner)
    largest, sums = tape.scratch((rows,)), tape.scratch((rows,))
    reduce_axis(tape, Reduction(Reduce.MAX), value, largest, sizes)
    reduce_axis(tape, Reduction(Reduce.SUM_EXPONENTIALS, largest), value, sums, sizes)
    push, constants = (value.count, size, inner), (target.is_half, logarithm)
    tape.dispatch("softmax_apply", (value, largest, sums, target), push, constants, items=value.count)


def _layer_norm(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    sizes = call.integers(1)
    kept = value.rank - len(sizes)
    if not sizes or kept < 0 or value.shape[kept:] != sizes:
        raise call.error(f"normalizes {value.shape} over {sizes}")
    weight, bias = call.optional(2), call.optional(3)
    rows = (*value.shape[:kept], *[1] * len(sizes))
    size = math.prod(sizes)
    _normalized(tape, call, value, rows, size, call.number(4), (weight, bias), (1, size))


def _group_norm(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    if value.rank < 2:
        raise call.error(f"normalizes groups of {value.shape}")
    (batch, channels), groups = value.shape[:2], call.integer(6)
    spatial = math.prod(value.shape[2:])
    if (
        (batch, channels, spatial) != (call.integer(3), call.integer(4), call.integer(5))
        or groups < 1
        or channels % groups
    ):
        raise call.error(f"normalizes {groups} groups of {value.shape}")
    size = channels // groups * spatial
    weights = (call.optional(1), call.optional(2))
    _normalized(tape, call, value, (batch, groups), size, call.number(7), weights, (spatial, channels))


def _rms_norm(tape: Tape, call: Reader) -> None:
    value, weight = call.tensor(0), call.optional(1)
    if value.rank < 1:
        raise call.error("normalizes a number")
    target = tape.result(call.result, value.shape)
    size = value.shape[-1]
    rows = value.count // size if size else 0
    means, scales = tape.scratch((rows,)), tape.scratch((rows,))
    _check_floats(call, value, target, weight)
    _check_weights(call, size, weight, None)
    moments(tape, value, means, scales, size, call.number(2), uncentred=True)
    _apply(tape, value, (means, scales), (weight, None), target, size, (1, size))


def _normalized(
    tape: Tape,
    call: Reader,
    value: Value,
    rows: tuple[int, ...],
    size: int,
    epsilon: float,
    weights: tuple[Value | None, Value | None],
    weighted: tuple[int, int],
) -> None:
    """Three results: the normalized values, the means of shape `rows`, and the scales."""
    if len(call.results) != 3:
        raise call.error(f"has {len(call.results)} results instead of 3")
    target = tape.result(call.results[0], value.shape)
    means, scales = (tape.result(result, rows) for result in call.results[1:])
    _check_floats(call, value, target, means, scales, *weights)
    _check_weights(call, weighted[1], *weights)
    if not value.count:
        return
    moments(tape, value, means, scales, size, epsilon)
    _apply(tape, value, (means, scales), weights, target, size, weighted)


def moments(
    tape: Tape, value: Value, means: Value, scales: Value, size: int, epsilon: float, *, uncentred: bool = False
) -> None:
    """The mean of each row of `size` elements, and 1 / sqrt(variance + epsilon)."""
    rows = value.count // size if size else 0
    # Never rounded to float16: they are intermediate values.
    means, scales = (Value(item.shape, DataType.FLOAT32, item.block) for item in (means, scales))
    if part_length(rows, size) < size:
        sizes = (rows, size, 1)
        if uncentred:
            fill(tape, means, 0.0)
        else:
            reduce_axis(tape, Reduction(Reduce.SUM, divisor=float(size)), value, means, sizes)
        squares = Reduction(Reduce.SUM_SQUARES, means, divisor=float(size), epsilon=float(epsilon))
        reduce_axis(tape, squares, value, scales, sizes)
        return
    constants = (scales.is_half, size % 4 == 0, uncentred)
    tape.dispatch("moments", (value, means, scales), (rows, size, float(epsilon)), constants, written=2, items=rows)


def _apply(
    tape: Tape,
    value: Value,
    moment: tuple[Value, Value],
    weights: tuple[Value | None, Value | None],
    target: Value,
    size: int,
    weighted: tuple[int, int],
) -> None:
    """`weighted`: elements with one weight, and the number of weights."""
    same, count = weighted
    vectors = size % 4 == 0 and (same % 4 == 0 if same > 1 else count % 4 == 0)
    weight, bias = weights
    buffers = (value, *moment, weight or value, bias or value, target)
    constants = (target.is_half, weight is not None, bias is not None, vectors)
    items = value.count // 4 if vectors else value.count
    tape.dispatch("normalize", buffers, (value.count, size, same, count), constants, items=items)


def _check_weights(call: Reader, count: int, *weights: Value | None) -> None:
    for weight in weights:
        if weight is not None and weight.count != count:
            raise call.error(f"has {weight.count} weights instead of {count}")


def _check_floats(call: Reader, *values: Value | None) -> None:
    if not all(value is None or value.is_float for value in values):
        raise call.error("takes floating-point numbers only")


KERNELS: Final[dict[str, Kernel]] = {
    "aten._softmax.default": _softmax(logarithm=False),
    "aten._log_softmax.default": _softmax(logarithm=True),
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "et_vk.rms_norm.default": _rms_norm,
}
