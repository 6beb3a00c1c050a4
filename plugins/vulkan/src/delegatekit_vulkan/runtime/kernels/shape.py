"""Operators that move elements and compute nothing, and those that compute with sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from delegatekit_toolkit.arguments import pads_of

from ...ir.graph import SymInt
from ..calls import Kernel, Reader
from ..memory import Padded, Value
from ..strided import broadcast, broadcast_strides, copy, strides, whole_copy
from ..tape import Tape


def _same(tape: Tape, call: Reader) -> None:
    """The input's own memory: layouts of the device have no effect here."""
    padded = tape.unpadded(call.declared(0))
    if padded is not None:
        tape.pad(call.result, padded)
        return
    value = call.tensor(0)
    tape.alias(call.result, value, value.shape)


def _view(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    sizes = list(call.integers(1))
    if sizes.count(-1) == 1:
        rest = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = value.count // rest if rest else 0
    tape.alias(call.result, value, sizes)


def _squeeze(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    axes = {call.checked_axis(axis, value.rank) for axis in call.integers(1)}
    tape.alias(call.result, value, [size for axis, size in enumerate(value.shape) if axis not in axes or size != 1])


def _unsqueeze(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    axis = call.axis(1, value.rank + 1)
    tape.alias(call.result, value, (*value.shape[:axis], 1, *value.shape[axis:]))


def _permute(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    order = [call.checked_axis(axis, value.rank) for axis in call.integers(1)]
    if sorted(order) != list(range(value.rank)):
        raise call.error(f"permutes {value.rank} axes by {order}")
    _permuted(tape, call, value, order)


def _transpose(tape: Tape, call: Reader) -> None:
    value = call.tensor(0, 0, 1, 2)
    _permuted(tape, call, value, range(value.rank)[::-1])


def _permuted(tape: Tape, call: Reader, value: Value, order: Sequence[int]) -> None:
    shape = [value.shape[axis] for axis in order]
    moving = [axis for axis in order if value.shape[axis] != 1]
    if moving == sorted(moving):
        tape.alias(call.result, value, shape)
        return
    own = strides(value.shape)
    whole_copy(tape, value, tape.result(call.result, shape), [own[axis] for axis in order])


def _expand(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    sizes = list(call.integers(1))
    missing = len(sizes) - value.rank
    if missing < 0:
        raise call.error(f"expands {value.shape} to {tuple(sizes)}")
    shape = [value.shape[i - missing] if size == -1 and i >= missing else size for i, size in enumerate(sizes)]
    if broadcast(value.shape, shape) != tuple(shape):
        raise call.error(f"expands {value.shape} to {tuple(shape)}")
    if math.prod(shape) == value.count:
        tape.alias(call.result, value, shape)
        return
    whole_copy(tape, value, tape.result(call.result, shape), broadcast_strides(value.shape, shape))


def _repeat(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    times = call.integers(1)
    missing = len(times) - value.rank
    if missing < 0 or min(times, default=0) < 0:
        raise call.error(f"repeats {value.shape} by {times}")
    shape = (1,) * missing + value.shape
    target = tape.result(call.result, [size * count for size, count in zip(shape, times, strict=True)])
    # Each axis is two: the repetition, and the position in it.
    sizes = [item for size, count in zip(shape, times, strict=True) for item in (count, size)]
    own = [item for step in broadcast_strides(value.shape, shape) for item in (0, step)]
    there = strides(target.shape)
    to = [item for size, step in zip(shape, there, strict=True) for item in (size * step, step)]
    copy(tape, value, target, sizes, own, to)


def _select(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    axis = call.axis(1, value.rank)
    size = value.shape[axis] if value.rank else 0
    index = call.integer(2)
    if not -size <= index < size:
        raise call.error(f"selects {index} of {size}")
    own = strides(value.shape)
    target = tape.result(call.result, (*value.shape[:axis], *value.shape[axis + 1 :]))
    whole_copy(tape, value, target, (*own[:axis], *own[axis + 1 :]), index % size * own[axis])


def _slice(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    axis = call.axis(1, value.rank)
    size = value.shape[axis] if value.rank else 0
    start, end, step = call.integer(2, 0), call.integer(3, size), call.integer(4)
    if step < 1:
        raise call.error(f"has the step {step}")
    start, end, _ = slice(start, end).indices(size)
    taken = max(0, -(-(end - start) // step))
    shape = (*value.shape[:axis], taken, *value.shape[axis + 1 :])
    if taken == size:
        tape.alias(call.result, value, shape)
        return
    own = list(strides(value.shape))
    offset = start * own[axis]
    own[axis] *= step
    whole_copy(tape, value, tape.result(call.result, shape), own, offset)


def _split(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    parts = call.integers(1)
    axis = call.axis(2, value.rank)
    if sum(parts) != value.shape[axis] or min(parts) < 0 or len(parts) != len(call.results):
        raise call.error(f"splits {value.shape[axis]} into {parts}, with {len(call.results)} results")
    own, start = strides(value.shape), 0
    for part, result in zip(parts, call.results, strict=True):
        target = tape.result(result, (*value.shape[:axis], part, *value.shape[axis + 1 :]))
        whole_copy(tape, value, target, own, start * own[axis])
        start += part


def _concatenate(tape: Tape, call: Reader) -> None:
    # PyTorch ignores empty tensors of one axis.
    values = [value for value in call.tensors(0) if value.shape != (0,)] or call.tensors(0)[:1]
    rank = values[0].rank
    axis = call.axis(1, rank)
    others = {(*value.shape[:axis], *value.shape[axis + 1 :]) for value in values}
    if len(others) != 1 or len({(value.rank, value.is_float) for value in values}) != 1:
        raise call.error(f"joins {', '.join(str(value.shape) for value in values)} along axis {axis}")
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    target = tape.result(call.result, shape)
    there, start = strides(shape), 0
    for value in values:
        copy(tape, value, target, value.shape, strides(value.shape), there, to_offset=start * there[axis])
        start += value.shape[axis]


def _flip(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    axes = {call.checked_axis(axis, value.rank) for axis in call.integers(1)}
    own = strides(value.shape)
    offset = sum((value.shape[axis] - 1) * own[axis] for axis in axes if value.shape[axis])
    steps = [-step if axis in axes else step for axis, step in enumerate(own)]
    whole_copy(tape, value, tape.result(call.result, value.shape), steps, offset)


def _unfold(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    axis, size, step = call.axis(1, value.rank), call.integer(2), call.integer(3)
    if not value.rank:
        raise call.error("takes windows of a single number")
    if step < 1 or not 0 <= size <= value.shape[axis]:
        raise call.error(f"takes windows of {size}, {step} apart, of {value.shape[axis]}")
    own = strides(value.shape)
    shape = [*value.shape, size]
    shape[axis] = (value.shape[axis] - size) // step + 1
    steps = [*own, own[axis]]
    steps[axis] *= step
    whole_copy(tape, value, tape.result(call.result, shape), steps)


def _pixel_shuffle(tape: Tape, call: Reader) -> None:
    shuffle_pixels(tape, call, call.tensor(0), call.integer(1))


def shuffle_pixels(tape: Tape, call: Reader, value: Value, factor: int) -> None:
    """Rearrange a pixel's channels to the pixels of a square of this side."""
    if value.rank < 3 or factor < 1 or value.shape[-3] % (factor * factor):
        raise call.error(f"shuffles {value.shape} by {factor}")
    *batch, channels, height, width = value.shape
    kept = channels // factor**2
    target = tape.result(call.result, (*batch, kept, height * factor, width * factor))
    many = math.prod(batch)
    own = strides((many, kept, factor, factor, height, width))
    order = (0, 1, 4, 2, 5, 3)
    sizes = [(many, kept, factor, factor, height, width)[axis] for axis in order]
    copy(tape, value, target, sizes, [own[axis] for axis in order], strides(sizes))


def _pad(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    pads = call.integers(1)
    if len(pads) % 2 or len(pads) // 2 > value.rank:
        raise call.error(f"pads {value.rank} axes by {pads}")
    amounts = pads_of(pads, value.rank)
    before, after = ([pair[side] for pair in amounts] for side in range(2))
    shape = [size + sum(pair) for size, pair in zip(value.shape, amounts, strict=True)]
    if min(shape, default=0) < 0:
        raise call.error(f"pads {value.shape} by {pads}")
    if not any(pads):
        tape.alias(call.result, value, shape)
        return
    number = call.number(2)

    def write(target: Value) -> None:
        fill(tape, target, number)
        own, there = strides(value.shape), strides(shape)
        skipped = [max(-pad, 0) for pad in before]
        sizes = [max(0, size - cut - max(-pad, 0)) for size, cut, pad in zip(value.shape, skipped, after, strict=True)]
        copy(
            tape,
            value,
            target,
            sizes,
            own,
            there,
            from_offset=sum(map(int.__mul__, skipped, own)),
            to_offset=sum(max(pad, 0) * step for pad, step in zip(before, there, strict=True)),
        )

    if number == 0 and value.is_float and min(*before, *after) >= 0:
        tape.pad(call.result, Padded(value, tuple(before), tuple(after), write, tape.call))
    else:
        write(tape.result(call.result, shape))


def fill(tape: Tape, target: Value, number: float) -> None:
    """Write a number everywhere."""
    first = _rounded(number, target) if target.is_float else int(number)
    tape.dispatch("fill", (target,), (target.count, first, 0), (target.is_half, 0), items=target.count)


def _rounded(number: float, target: Value) -> float:
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.float16(number)) if target.is_half else float(np.float32(number))


def _full(position: int | None, number: float | None = None) -> Kernel:
    """A constant tensor; `position` is that of the number, or the number is fixed."""

    def kernel(tape: Tape, call: Reader) -> None:
        like = call.operator.partition(".")[2].partition(".")[0].endswith("_like")
        shape = call.tensor(0).shape if like else call.integers(0)
        if min(shape, default=0) < 0:
            raise call.error(f"makes a tensor of the sizes {shape}")
        target = tape.result(call.result, shape)
        raw = call.raw(position) if position is not None else number
        value = float(raw) if isinstance(raw, bool) else call.number(position) if position is not None else float(raw)  # type: ignore[arg-type]
        fill(tape, target, value)

    return kernel


def _scalar_tensor(tape: Tape, call: Reader) -> None:
    fill(tape, tape.result(call.result, ()), call.number(0))


def _arange(tape: Tape, call: Reader) -> None:
    start, end, step = (call.number(position) for position in range(3))
    if not step or not all(map(math.isfinite, (start, end, step))):
        raise call.error(f"counts from {start} to {end} by {step}")
    count = max(0, math.ceil((end - start) / step))
    target = tape.result(call.result, (count,))
    numbers = (start, step) if target.is_float else (int(start), int(step))
    kind = 1 if target.is_float else 2
    tape.dispatch("fill", (target,), (count, *numbers), (target.is_half, kind), items=count)


# -- numbers computed from sizes ---------------------------------------------------------------------------------------


def _size_of(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    _number(tape, call, value.shape[call.axis(1, value.rank)])


def _number_in(tape: Tape, call: Reader) -> None:
    value, source = call.tensor(0), call.declared(0)
    axis, index = call.axis(1, value.rank), call.integer(2)
    size = value.shape[axis] if value.rank else 0
    if source not in tape.inputs or value.is_float or value.count != size or not -size <= index < size:
        raise call.error(f"reads number {index} of {value.shape}: integers of an input are read")
    if not isinstance(call.result, SymInt):
        raise call.error("its result is not a number")
    # Unknown while no call is made.
    tape.numbers.setdefault(call.result, 0)


def _arithmetic(function: Callable[[int, int], int | bool]) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        left, right = call.integer(0), call.integer(1)
        try:
            _number(tape, call, int(function(left, right)))
        except ZeroDivisionError:
            raise call.error(f"divides {left} by 0") from None

    return kernel


def _number(tape: Tape, call: Reader, number: int) -> None:
    if not isinstance(call.result, SymInt):
        raise call.error("its result is not a number")
    tape.numbers[call.result] = number


KERNELS: Final[dict[str, Kernel]] = {
    "et_vk.prepack.default": _same,
    "aten.clone.default": _same,
    "aten.alias_copy.default": _same,
    "dim_order_ops._clone_dim_order.default": _same,
    "aten.view_copy.default": _view,
    "aten.squeeze_copy.dims": _squeeze,
    "aten.unsqueeze_copy.default": _unsqueeze,
    "aten.permute_copy.default": _permute,
    "aten.permute.default": _permute,
    "aten.t_copy.default": _transpose,
    "aten.expand_copy.default": _expand,
    "aten.repeat.default": _repeat,
    "aten.select_copy.int": _select,
    "aten.slice_copy.Tensor": _slice,
    "aten.split_with_sizes_copy.default": _split,
    "aten.cat.default": _concatenate,
    "aten.flip.default": _flip,
    "aten.unfold_copy.default": _unfold,
    "aten.pixel_shuffle.default": _pixel_shuffle,
    "aten.constant_pad_nd.default": _pad,
    "aten.full.default": _full(1),
    "aten.full_like.default": _full(1),
    "aten.zeros.default": _full(None, 0.0),
    "aten.zeros_like.default": _full(None, 0.0),
    "aten.ones.default": _full(None, 1.0),
    "aten.ones_like.default": _full(None, 1.0),
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.start_step": _arange,
    "sym_size.int": _size_of,
    "et_vk.select_as_symint.default": _number_in,
    "add": _arithmetic(lambda a, b: a + b),
    "sub": _arithmetic(lambda a, b: a - b),
    "mul": _arithmetic(lambda a, b: a * b),
    "floordiv": _arithmetic(lambda a, b: a // b),
    "lt": _arithmetic(lambda a, b: a < b),
    "le": _arithmetic(lambda a, b: a <= b),
    "gt": _arithmetic(lambda a, b: a > b),
    "ge": _arithmetic(lambda a, b: a >= b),
    "eq": _arithmetic(lambda a, b: a == b),
}
