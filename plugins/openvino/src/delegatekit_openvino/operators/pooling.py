"""Pooling, over one, two or three axes."""

from __future__ import annotations

from typing import Any, Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import is_plain_average, per_axis, pooled_axes, shares_of, windows_of
from delegatekit_toolkit.constraints import types_of, unused
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Made, ModelBuilder, Value
from ..ir.sizes import is_fixed
from .common import FLOATS, REAL, dropped, inserted, lost_nan, mul, tensor


def _pooled(b: ModelBuilder, call: Call, kind: str, **more: Any) -> Value:
    """A pooling, also of one image without a batch."""
    kernel, strides, pads = windows_of(call, pooled_axes(call))
    x = _batched(b, call)
    made = b.op(
        kind,
        x,
        strides=list(strides),
        pads_begin=list(pads),
        pads_end=list(pads),
        kernel_shape=list(kernel),
        rounding_type="ceil_torch" if call["ceil_mode"] else "floor",
        **more,
    )
    return _unbatched(b, call, made)


def _batched(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return x if x.rank == pooled_axes(call) + 2 else inserted(b, x, 0)


def _unbatched(b: ModelBuilder, call: Call, made: Value) -> Value:
    shape = call.results[0].shape
    made = made if made.rank == len(shape) else dropped(b, made, [0])
    return b.declare(made, shape)


def _average(b: ModelBuilder, call: Call) -> Made:
    """The average of what is there, and where padding or another divisor count, times what is there of that.

    OpenVINO's own averages with padding are wrong for some channels.
    """
    made = _pooled(b, call, "avg_pool", exclude_pad=True)
    return made if is_plain_average(call) else mul(b, made, b.constant(shares_of(call)))


def _maximum(b: ModelBuilder, call: Call) -> Made:
    """The maximum, and nothing for its places, which nothing uses."""
    made = _pooled(b, call, "max_pool", dilations=list(per_axis(call["dilation"], pooled_axes(call))))
    return made if len(call.results) == 1 else (made, None)


def _adapted(b: ModelBuilder, call: Call, kind: str) -> Value:
    sizes = call.results[0].shape[-pooled_axes(call) :]
    more = {"index_element_type": "i32"} if kind == "max" else {}
    return _unbatched(b, call, b.op(f"adaptive_{kind}_pool", _batched(b, call), b.integers(sizes), **more))


def _adaptive_average(b: ModelBuilder, call: Call) -> Made:
    return _adapted(b, call, "avg")


def _adaptive_maximum(b: ModelBuilder, call: Call) -> Made:
    return _adapted(b, call, "max"), None


def known_shares(call: Call) -> str | None:
    """Images keep their size where padding, or a divisor of its own, counts."""
    sizes = call["self"].shape[-pooled_axes(call) :]
    if is_plain_average(call) or all(map(is_fixed, sizes)):
        return None
    return "the size of the images changes from call to call, and padding or a divisor of its own counts"


def fixed_result(call: Call) -> str | None:
    """The result's size is fixed."""
    sizes = call.results[0].shape[-pooled_axes(call) :]
    return None if all(map(is_fixed, sizes)) else "the size of the result changes from call to call"


def images(call: Call) -> str | None:
    """self has one image, or a batch of them."""
    axes, found = pooled_axes(call), call["self"].rank
    return None if found in (axes + 1, axes + 2) else f"self has {found} axes: {axes + 1} or {axes + 2} are taken"


_PLACES: Final = unused(1, "places")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("avg_pool2d.default avg_pool3d.default", _average, images, REAL, known_shares),
    row(
        "max_pool1d.default max_pool2d.default max_pool3d.default",
        _maximum,
        images,
        REAL,
        keep=True,
        special_values=lost_nan,
    ),
    row(
        "max_pool2d_with_indices.default max_pool3d_with_indices.default",
        _maximum,
        images,
        types_of("self", *FLOATS),
        _PLACES,
        special_values=lost_nan,
    ),
    row(
        "_adaptive_avg_pool2d.default _adaptive_avg_pool3d.default",
        _adaptive_average,
        images,
        REAL,
        fixed_result,
    ),
    row(
        "adaptive_max_pool2d.default adaptive_max_pool3d.default",
        _adaptive_maximum,
        images,
        types_of("self", *FLOATS),
        _PLACES,
        fixed_result,
        keep=True,
        special_values=lost_nan,
    ),
)
