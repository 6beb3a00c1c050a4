"""Windows over images: pooling, pixel shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.constraints import rank, types_of
from delegatekit_toolkit.layout import identity, to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Array, Encoding, Parameter, Scalar, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, as_result, mul
from .program import Lower, ProgramBuilder

_LAST: Final = to_channels_last(4)


def pooled(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    windows: tuple[Sequence[int], Sequence[int], Sequence[int]],
    sizes: Sequence[int],
    result: tuple[DataType, Encoding | None],
    *,
    counts_padding: bool = False,
) -> Value:
    """Windows (their sizes, strides and padding) over the last two of three or four axes, so many of them.

    Windows that reach beyond the padding find more of it there.
    """
    window, stride, pad = windows
    batched = x.rank == 4
    if not batched:
        x = Value(b.reshaped(b.dense(x), (1, *x.shape)), identity(4))
    tensor = b.stored(x, _LAST)
    batch, *images, channels = tensor.shape
    pads = []
    for size, count, wide, step, before in zip(images, sizes, window, stride, pad, strict=True):
        after = (count - 1) * step + wide - size - before
        pads.append([before, max(after, 0)])
    parameters: dict[str, Parameter] = {
        "filter_size": uint32(*window),
        "stride": uint32(*stride),
        "pad_amount": np.array(pads, dtype=np.uint32),
    }
    if kind == "PoolAvg2d":
        parameters["count_pad_for_edges"] = Scalar(DataType.BOOL, counts_padding)
    datatype, encoding = result
    made = b.emit(kind, [tensor], (batch, *sizes, channels), datatype, encoding, **parameters)
    if batched:
        return Value(made, _LAST)
    return Value(b.reshaped(b.dense(Value(made, _LAST)), (channels, *sizes)), identity(3))


def _windows(call: Call) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    window = per_axis(call["kernel_size"], 2)
    return window, per_axis(call["stride"], 2) or window, per_axis(call["padding"], 2, 0)


def _largest(b: ProgramBuilder, call: Call) -> Value:
    x = b.activation(call["self"])
    return pooled(b, "PoolMax2d", x, _windows(call), call.results[0].shape[-2:], b.result_type(call))


def _largest_and_nothing(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    """The places are not used: anything may stand for them."""
    found = _largest(b, call)
    return found, found


def unused_indices(call: Call) -> str | None:
    """The places of the largest elements are not used."""
    used = any(user.operator == "getitem" and user.node.args[1] == 1 for user in call.users)
    return "the places of the largest elements are used" if used else None


def _counts(size: int, count: int, window: int, stride: int, pad: int) -> tuple[Array, Array]:
    """How many elements windows along an axis have, without and with the padding."""
    start = np.arange(count) * stride - pad
    end = np.minimum(start + window, size + pad)
    return np.minimum(end, size) - np.maximum(start, 0), end - start


def _average(b: ProgramBuilder, call: Call) -> Value:
    """An average of the elements that are there, times their share in what PyTorch divides by."""
    x = b.activation(call["self"])
    windows, sizes = _windows(call), call.result.shape[-2:]
    places = zip(call["self"].shape[-2:], sizes, *windows, strict=True)
    (rows, all_rows), (columns, all_columns) = (_counts(*item) for item in places)
    there = np.outer(rows, columns)
    divisor = np.full_like(there, call["divisor_override"] or 0)
    if not divisor.any():
        divisor = np.outer(all_rows, all_columns) if call["count_include_pad"] else there
    result = b.result_type(call)
    if (divisor == there).all():
        return pooled(b, "PoolAvg2d", x, windows, sizes, result)
    if (divisor == windows[0][0] * windows[0][1]).all():
        return pooled(b, "PoolAvg2d", x, windows, sizes, result, counts_padding=True)
    found = pooled(b, "PoolAvg2d", b.floats(x), windows, sizes, (DataType.FLOAT32, None))
    share = b.constant((there / divisor).astype(np.float32))
    return as_result(b, call, mul(b, found, Value(share, identity(2))))


def _adaptive_average(b: ProgramBuilder, call: Call) -> Value:
    """Windows of one size where the sizes divide each other; else each axis by a matrix of shares."""
    x = b.activation(call["self"])
    old, new = call["self"].shape[-2:], call.result.shape[-2:]
    if all(size % count == 0 for size, count in zip(old, new, strict=True)):
        window = tuple(size // count for size, count in zip(old, new, strict=True))
        return pooled(b, "PoolAvg2d", x, (window, window, (0, 0)), new, b.result_type(call))
    tensor = b.dense(b.floats(x))
    shape = (*x.shape[:-2], new[0], old[1])
    flag = Scalar(DataType.BOOL, False)
    share = b.constant(np.broadcast_to(_shares(old[0], new[0]), (*x.shape[:-2], new[0], old[0])))
    rows = b.emit("MatMul", [share, tensor], shape, DataType.FLOAT32, transpose_in0=flag, transpose_in1=flag)
    share = b.constant(np.broadcast_to(_shares(old[1], new[1]).T, (*x.shape[:-2], old[1], new[1])))
    made = b.emit("MatMul", [rows, share], call.result.shape, DataType.FLOAT32, transpose_in0=flag, transpose_in1=flag)
    return as_result(b, call, Value(made, identity(x.rank)))


def _shares(old: int, new: int) -> Array:
    """Each of so many windows' share in the elements of an axis."""
    shares = np.zeros((new, old), np.float32)
    for place in range(new):
        start, end = place * old // new, -(-(place + 1) * old // new)
        shares[place, start:end] = 1 / (end - start)
    return shares


def _shuffled(kind: str, factor: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        tensor = b.stored(x, _LAST)
        size = call[factor]
        n, c, h, w = call.result.shape
        made = b.emit(
            kind,
            [tensor],
            (n, h, w, c),
            tensor.datatype,
            tensor.encoding,
            block_size=uint32(size, size),
            mode=Scalar(DataType.UINT32, 1),
        )
        return Value(made, _LAST)

    return lower


# -- conditions --------------------------------------------------------------------------------------------------------


def no_gaps(call: Call) -> str | None:
    """Windows without dilation."""
    dilation = per_axis(call.get("dilation", 1), 2, 1)
    return None if set(dilation) == {1} else f"dilation = {call['dilation']}: 1 is taken"


def windows_inside(call: Call) -> str | None:
    """No window is larger than the image: the library counts what is not there."""
    image, window = call["self"].shape[-2:], per_axis(call["kernel_size"], 2)
    larger = any(wide > size for wide, size in zip(window, image, strict=True))
    return f"windows of {window} over images of {tuple(image)}" if larger else None


_IMAGES: Final = rank("self", 3, 4)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("max_pool2d.default", _largest, _IMAGES, REAL, no_gaps, windows_inside, keep=True, fixed=True),
    row(
        "max_pool2d_with_indices.default",
        _largest_and_nothing,
        _IMAGES,
        types_of("self", "float32"),
        no_gaps,
        windows_inside,
        unused_indices,
        fixed=True,
    ),
    row("avg_pool2d.default", _average, _IMAGES, REAL, windows_inside, fixed=True),
    row("_adaptive_avg_pool2d.default", _adaptive_average, _IMAGES, REAL, fixed=True),
    row(
        "pixel_shuffle.default",
        _shuffled("DepthToSpace", "upscale_factor"),
        rank("self", 4),
        REAL,
        keep=True,
        fixed=True,
    ),
    row(
        "pixel_unshuffle.default",
        _shuffled("SpaceToDepth", "downscale_factor"),
        rank("self", 4),
        REAL,
        keep=True,
        fixed=True,
    ),
)
