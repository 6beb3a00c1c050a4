"""Operators that move elements: views, permutations, slices, joins, repetitions, and tensors that are made of numbers.

All of them are passengers: a delegate of moves alone would only copy tensors to the device and back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.constraints import same_dtypes
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.sizes import Dynamic, Size
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Argument, Tensor
from ..ir.types import TEXTURE_RANK, DataType
from .common import FLOATS, INTEGERS, both, compared, concatenated, converted, four_axes, mul, types
from .program import Lower, ProgramBuilder


def _with_arguments(operator: str, *names: str) -> Lower:
    """The runtime's operator of the same meaning; the arguments may be computed from sizes."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        arguments = [b.numbers(call, name) for name in names]
        return b.call(operator, [b.tensor(call["self"]), *arguments], b.shape(call))

    return lower


_EXPAND: Final = "aten.expand_copy.default"


def _expand(b: ProgramBuilder, call: Call) -> Tensor:
    """The runtime's own expansion keeps its sizes: where they change, ones as large as each new axis do it."""
    x, wanted, numbers = b.tensor(call["self"]), b.shape(call), b.numbers(call, "size")
    if _EXPAND in _expands_by(call):
        return b.call(_EXPAND, [x, numbers, b.numbers(call, "implicit")], wanted)
    assert isinstance(numbers, tuple)
    blocks = _blocks(call)
    if len(wanted) <= TEXTURE_RANK:
        return _repeated(b, x, wanted, numbers)
    # Neighbors that are all kept, or all repeated, are one axis.
    had = (1,) * (len(wanted) - len(x.shape)) + x.shape
    counts = [b.product([numbers[axis] for axis in block]) for block in blocks]
    sizes = [math.prod(wanted[axis] for axis in block) for block in blocks]
    before = [math.prod(had[axis] for axis in block) for block in blocks]
    kept = [count if size == have else 1 for count, size, have in zip(counts, sizes, before, strict=True)]
    return b.view(_repeated(b, b.view(x, before, lambda: kept), sizes, counts), wanted, lambda: numbers)


def _repeated(b: ProgramBuilder, x: Tensor, wanted: Sequence[Size], numbers: Sequence[Argument]) -> Tensor:
    """Expanded to sizes, which are `numbers` in a call, as a product with ones."""
    new = len(wanted) - len(x.shape)
    had = (None, *[1] * (new - 1), *x.shape) if new else x.shape
    for axis, (have, want, number) in enumerate(zip(had, wanted, numbers, strict=True)):
        if have != want:
            ones = b.view(_ones(b, want, number, x.datatype), (want, *[1] * (len(wanted) - axis - 1)))
            x = both(b, x, ones) if x.datatype is DataType.BOOL else mul(b, x, ones)
    return x


def _blocks(call: Call) -> list[list[int]]:
    """The axes of an expansion, neighbors together that are all kept or all repeated."""
    shape, wanted = shape_of(call["self"]), shape_of(call.result)
    had = (1,) * (len(wanted) - len(shape)) + shape
    pairs = groupby(range(len(wanted)), key=lambda axis: had[axis] == wanted[axis])
    return [list(axes) for _, axes in pairs]


def _expands_by(call: Call) -> tuple[str, ...]:
    """The runtime's operators that expand a tensor and limit how."""
    few = min(call.result.rank, len(_blocks(call))) <= TEXTURE_RANK
    return () if call.is_dynamic and few else (_EXPAND,)


def _ones(b: ProgramBuilder, size: Size, number: Argument, datatype: DataType) -> Tensor:
    """As many as `size`, which is `number` in a call."""
    if isinstance(size, int):
        return b.computed(b.constant(torch.ones(size, dtype=datatype.torch)))
    count = b.call("aten.arange.start_step", [0, number, 1, *[None] * 4], (size,), DataType.INT32)
    return converted(b, compared(b, "ge", count, 0), datatype)


def _slice(b: ProgramBuilder, call: Call) -> Tensor:
    x, axis = b.tensor(call["self"]), call["dim"] % call["self"].rank
    bounds = [b.numbers(call, name) for name in ("start", "end", "step")]
    return b.call("aten.slice_copy.Tensor", [x, axis, *bounds], b.shape(call))


def _has_axes(call: Call) -> str | None:
    """A number without axes counts as a window of itself in PyTorch."""
    return None if call["self"].rank else "the operand is a single number, which has no windows"


def _concatenate(b: ProgramBuilder, call: Call) -> Tensor:
    parts = [b.tensor(item) for item in call["tensors"] if shape_of(item) != (0,)]
    shape, is_bool = b.shape(call), parts[0].datatype is DataType.BOOL
    axis = call["dim"] % len(shape)
    if is_bool:
        parts = [converted(b, part, DataType.INT32) for part in parts]
    joined = concatenated(b, parts, axis)
    return compared(b, "ne", joined, 0) if is_bool else joined


def joined_as_three(call: Call) -> str | None:
    """Tensors of more than 4 axes have sizes that do not change."""
    if call.result.rank > TEXTURE_RANK and call.is_dynamic:
        return f"tensors of {call.result.rank} axes with sizes that change: {TEXTURE_RANK} axes are taken"
    return None


def _full(b: ProgramBuilder, call: Call) -> Tensor:
    """The runtime's own operator keeps its sizes: where they change, a product with ones does it."""
    numbers = b.numbers(call, "size")
    if _FULL in _fills_by(call):
        rest: list[Argument] = [None] * 4
        return b.call(_FULL, [numbers, call["fill_value"], *rest], b.shape(call), b.result_type(call))
    assert isinstance(numbers, tuple)
    return _repeated(b, b.term(call, "fill_value", b.result_type(call)), b.shape(call), numbers)


_FULL: Final = "aten.full.default"


def _fills_by(call: Call) -> tuple[str, ...]:
    """The runtime's operators that fill a tensor and limit how."""
    return () if call.is_dynamic else (_FULL,)


def _count(b: ProgramBuilder, call: Call) -> Tensor:
    numbers = [b.numbers(call, name) if call.has(name) else default for name, default in _COUNTING]
    rest: list[Argument] = [None] * 4
    return b.call("aten.arange.start_step", [*numbers, *rest], b.shape(call), b.result_type(call))


_COUNTING: Final = (("start", 0), ("end", 0), ("step", 1))


# -- writing into a copy -----------------------------------------------------------------------------------------------


def written_at_known_places(call: Call) -> str | None:
    """The place that is written, and the axis, do not change."""
    axis = call["dim"] % call["self"].rank
    if isinstance(shape_of(call["self"])[axis], Dynamic) or call.sizes:
        return "the place that is written changes from call to call"
    if call.has("step") and call["step"] != 1:
        return f"step = {call['step']}: 1 is taken"
    return None


def _slice_scatter(b: ProgramBuilder, call: Call) -> Tensor:
    size = b.tensor(call["self"]).sizes[call["dim"] % call["self"].rank]
    start, end, _ = slice(call["start"], call["end"]).indices(size)
    return _overwritten(b, call, start, max(start, end), b.tensor(call["src"]))


def _select_scatter(b: ProgramBuilder, call: Call) -> Tensor:
    axis = call["dim"] % call["self"].rank
    source = b.tensor(call["src"])
    shape = (*source.shape[:axis], 1, *source.shape[axis:])
    start = call["index"] % b.tensor(call["self"]).sizes[axis]
    return _overwritten(b, call, start, start + 1, b.call("aten.unsqueeze_copy.default", [source, axis], shape))


def _overwritten(b: ProgramBuilder, call: Call, start: int, end: int, source: Tensor) -> Tensor:
    x, axis = b.tensor(call["self"]), call["dim"] % call["self"].rank
    parts = [_taken(b, x, axis, 0, start), source, _taken(b, x, axis, end, x.sizes[axis])]
    kept = [part for part in parts if 0 not in part.shape]
    return concatenated(b, kept, axis) if len(kept) > 1 else kept[0]


def _taken(b: ProgramBuilder, x: Tensor, axis: int, start: int, end: int) -> Tensor:
    shape = (*x.shape[:axis], end - start, *x.shape[axis + 1 :])
    if end == start:
        return Tensor(shape, x.datatype, x.staging)
    return b.call("aten.slice_copy.Tensor", [x, axis, start, end, 1], shape)


# -- the rows ----------------------------------------------------------------------------------------------------------

_ALL: Final = types(*FLOATS, *INTEGERS, "bool")
_NUMBERS: Final = types(*FLOATS, *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("view_copy.default", _with_arguments("aten.view_copy.default", "size"), _ALL, passenger=True, takes_sizes=True),
    row("squeeze_copy.dims", _with_arguments("aten.squeeze_copy.dims", "dim"), _ALL, passenger=True),
    row("unsqueeze_copy.default", _with_arguments("aten.unsqueeze_copy.default", "dim"), _ALL, passenger=True),
    row("permute_copy.default", _with_arguments("aten.permute_copy.default", "dims"), _ALL, passenger=True),
    row(
        "expand_copy.default",
        _expand,
        _ALL,
        passenger=True,
        takes_sizes=True,
        runs=_expands_by,
    ),
    row("repeat.default", _with_arguments("aten.repeat.default", "repeats"), _ALL, passenger=True, takes_sizes=True),
    row("flip.default", _with_arguments("aten.flip.default", "dims"), _ALL, passenger=True),
    row(
        "unfold_copy.default",
        _with_arguments("aten.unfold_copy.default", "dimension", "size", "step"),
        types(*FLOATS),
        _has_axes,
        passenger=True,
    ),
    row(
        "select_copy.int",
        _with_arguments("aten.select_copy.int", "dim", "index"),
        _ALL,
        passenger=True,
        takes_sizes=True,
    ),
    row("slice_copy.Tensor", _slice, _ALL, passenger=True, takes_sizes=True),
    row("cat.default", _concatenate, _ALL, same_dtypes(), joined_as_three, passenger=True, runs=()),
    row(
        "full.default",
        _full,
        _NUMBERS,
        four_axes,
        numbers_fit,
        passenger=True,
        takes_sizes=True,
        runs=_fills_by,
    ),
    row("arange.start_step arange.default", _count, _NUMBERS, passenger=True, takes_sizes=True),
    row("slice_scatter.default", _slice_scatter, _NUMBERS, written_at_known_places, joined_as_three, passenger=True),
    row("select_scatter.default", _select_scatter, _NUMBERS, written_at_known_places, joined_as_three, passenger=True),
)
