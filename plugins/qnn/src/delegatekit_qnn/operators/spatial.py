"""Windows over images: pooling, pixel shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.constraints import rank, types_of, unused
from delegatekit_toolkit.layout import identity, to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Array, Encoding, Parameter, Scalar, Tensor, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, as_result, mul
from .moves import concatenated, sliced, tiled
from .program import Lower, ProgramBuilder

_LAST: Final = to_channels_last(4)


def pooled(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    windows: tuple[Sequence[int], Sequence[int], Sequence[int]],
    sizes: Sequence[int],
    result: tuple[DataType, Encoding | None],
) -> Value:
    """Windows (their sizes, strides and padding) over the last two or three axes, so many of them.

    `kind` is "Max" or "Avg"; there may be a batch. Windows that reach beyond the padding find more of it there.
    """
    window, stride, pad = windows
    if kind == "Max" and window[-1] == 1 < stride[-1] and not pad[-1]:
        # The library crashes at such steps; what lies between them is not looked at.
        x = sliced(b, x, x.rank - 1, 0, (sizes[-1] - 1) * stride[-1] + 1, stride[-1])
        stride = (*stride[:-1], 1)
    first = x.rank - len(window)
    for axis, settings in enumerate(zip(window, stride, pad, strict=True)):
        if settings == (2, 2, 1):
            # The library reads what is no element there: one that stands twice is as large, and as much on average.
            x = _ends_twice(b, x, first + axis)
            pad = (*pad[:axis], 0, *pad[axis + 1 :])
    rank = len(window) + 2
    order = to_channels_last(rank)
    batched = x.rank == rank
    if not batched:
        x = Value(b.reshaped(b.dense(x), (1, *x.shape)), identity(rank))
    tensor = b.stored(x, order)
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
    if kind == "Avg":
        # Where it is counted, the library's averages of one row are wrong.
        parameters["count_pad_for_edges"] = Scalar(DataType.BOOL, False)
    datatype, encoding = result
    shape = (batch, *sizes, channels)
    made = Value(b.emit(f"Pool{kind}{len(window)}d", [tensor], shape, datatype, encoding, **parameters), order)
    return made if batched else Value(b.reshaped(b.dense(made), (channels, *sizes)), identity(rank - 1))


def _ends_twice(b: ProgramBuilder, x: Value, axis: int) -> Value:
    ends = [sliced(b, x, axis, at, at + 1) for at in (0, x.shape[axis] - 1)]
    return concatenated(b, [ends[0], x, ends[1]], axis)


def _axes(call: Call) -> int:
    """Over how many axes windows go: as the operator's name says."""
    return 3 if "pool3d" in call.operator else 2


def _windows(call: Call) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    axes = _axes(call)
    window = per_axis(call["kernel_size"], axes)
    return window, per_axis(call["stride"], axes) or window, per_axis(call["padding"], axes, 0)


def _largest(b: ProgramBuilder, call: Call) -> Value:
    x = b.activation(call["self"])
    return pooled(b, "Max", x, _windows(call), call.results[0].shape[-_axes(call) :], b.result_type(call))


def _largest_and_nothing(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    """The places are not used: anything may stand for them."""
    found = _largest(b, call)
    return found, found


def _counts(size: int, count: int, window: int, stride: int, pad: int) -> tuple[Array, Array]:
    """The numbers of elements of windows along an axis, without and with the padding."""
    start = np.arange(count) * stride - pad
    end = np.minimum(start + window, size + pad)
    return np.minimum(end, size) - np.maximum(start, 0), end - start


def _average(b: ProgramBuilder, call: Call) -> Value:
    """An average of the elements that are there, times their share in what PyTorch divides by."""
    x = b.activation(call["self"])
    windows, sizes = _windows(call), call.result.shape[-_axes(call) :]
    places = zip(call["self"].shape[-_axes(call) :], sizes, *windows, strict=True)
    counts = [_counts(*item) for item in places]
    there, everywhere = (reduce(np.multiply.outer, item) for item in zip(*counts, strict=True))
    divisor = np.full_like(there, call["divisor_override"] or 0)
    if not divisor.any():
        divisor = everywhere if call["count_include_pad"] else there
    window, stride, pad = windows
    if set(sizes) == {1} and any(pad):
        # The library lets a single window begin at the image, and not in the padding.
        window = tuple(wide - before for wide, before in zip(window, pad, strict=True))
        for axis, wide in enumerate(window, x.rank - len(window)):
            x = sliced(b, x, axis, 0, wide)
        windows = window, stride, (0,) * len(window)
    if (divisor == there).all() and (there == there.flat[0]).all():
        return pooled(b, "Avg", x, windows, sizes, b.result_type(call))
    # Of integers, the library gives wrong averages where some windows have fewer elements: 3 x 3, every second.
    found = pooled(b, "Avg", b.floats(x), windows, sizes, (DataType.FLOAT32, None))
    if (divisor != there).any():
        found = mul(b, found, Value(b.constant((there / divisor).astype(np.float32)), identity(len(sizes))))
    return as_result(b, call, found)


def _adaptive_average(b: ProgramBuilder, call: Call) -> Value:
    """Windows of one size where the sizes divide each other; else each axis by a matrix of shares."""
    x = b.activation(call["self"])
    axes = _axes(call)
    old, new = call["self"].shape[-axes:], call.result.shape[-axes:]
    if divides(call):
        window = tuple(size // count for size, count in zip(old, new, strict=True))
        return pooled(b, "Avg", x, (window, window, (0,) * axes), new, b.result_type(call))
    tensor = _spread(b, b.dense(b.floats(x)), x.rank - 2, new[0])
    return as_result(b, call, Value(_spread(b, tensor, x.rank - 1, new[1]), identity(x.rank)))


def _spread(b: ProgramBuilder, x: Tensor, axis: int, count: int) -> Tensor:
    """Means of so many windows along one of the last two axes: a product with a matrix of shares."""
    size, last = x.shape[axis], axis == x.rank - 1
    if size == 1:  # the library fails at products of such matrices
        return tiled(b, x, [count if at == axis else 1 for at in range(x.rank)])
    shares = _shares(size, count).T if last else _shares(size, count)
    share = b.constant(np.broadcast_to(shares, (*x.shape[:-2], *shares.shape)))
    shape = [count if at == axis else old for at, old in enumerate(x.shape)]
    no = Scalar(DataType.BOOL, False)
    return b.emit("MatMul", [x, share] if last else [share, x], shape, x.datatype, transpose_in0=no, transpose_in1=no)


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
    dilation = per_axis(call.get("dilation", 1), _axes(call), 1)
    return None if set(dilation) == {1} else f"dilation = {call['dilation']}: 1 is taken"


def windows_inside(call: Call) -> str | None:
    """No window is larger than the image: the library counts what is not there."""
    image, window = call["self"].shape[-_axes(call) :], per_axis(call["kernel_size"], _axes(call))
    larger = any(wide > size for wide, size in zip(window, image, strict=True))
    return f"windows of {window} over images of {tuple(image)}" if larger else None


def windows_within_padding(call: Call) -> str | None:
    """No window of ceil_mode reaches beyond the padding: the library reads there what may be no memory of its own."""
    sizes, counts = (shape[-_axes(call) :] for shape in (call["self"].shape, call.result.shape))
    places = zip(sizes, counts, *_windows(call), strict=True)
    ends = [(count - 1) * step + wide - size - 2 * pad for size, count, wide, step, pad in places]
    return f"windows reach {max(ends)} beyond the padding" if max(ends) > 0 else None


def depth_beside_padding(call: Call) -> str | None:
    """The first of three axes has no padding, or all have some: else the library divides by whole windows there."""
    first, *others = _windows(call)[2]
    return f"padding {(first, *others)}, of the first axis without another's" if first and 0 in others else None


def divides(call: Call) -> bool:
    """True if each size of the image is a multiple of the result's."""
    axes = _axes(call)
    return all(
        size % count == 0 for size, count in zip(call["self"].shape[-axes:], call.result.shape[-axes:], strict=True)
    )


def equal_windows(call: Call) -> str | None:
    """Windows of one size."""
    old, new = call["self"].shape[-_axes(call) :], call.result.shape[-_axes(call) :]
    return None if divides(call) else f"{tuple(old)} is no multiple of {tuple(new)}"


#: So many windows of several sizes along an axis are taken.
_MANY: Final = 8192


def few_windows(call: Call) -> str | None:
    """Windows of several sizes, at most 8192 along an axis: more, made five axes, the library does not compile."""
    count = max(call.result.shape[-_axes(call) :])
    return None if count <= _MANY or divides(call) else f"{count} windows of several sizes: {_MANY} are taken"


_IMAGES: Final = rank("self", 3, 4)
_BLOCKS: Final = rank("self", 4, 5)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("max_pool2d.default", _largest, _IMAGES, REAL, no_gaps, windows_inside, keep=True, fixed=True),
    row(
        "max_pool2d_with_indices.default",
        _largest_and_nothing,
        _IMAGES,
        types_of("self", "float32"),
        no_gaps,
        windows_inside,
        unused(1, "places of the largest elements"),
        fixed=True,
    ),
    row("max_pool3d.default", _largest, _BLOCKS, REAL, no_gaps, windows_inside, keep=True, fixed=True),
    row(
        "avg_pool3d.default",
        _average,
        _BLOCKS,
        REAL,
        windows_inside,
        windows_within_padding,
        depth_beside_padding,
        keep=True,
        fixed=True,
    ),
    row(
        "_adaptive_avg_pool3d.default",
        _adaptive_average,
        _BLOCKS,
        REAL,
        equal_windows,
        keep=True,
        fixed=True,
    ),
    row("avg_pool2d.default", _average, _IMAGES, REAL, windows_inside, windows_within_padding, fixed=True),
    row("_adaptive_avg_pool2d.default", _adaptive_average, _IMAGES, REAL, few_windows, fixed=True),
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
