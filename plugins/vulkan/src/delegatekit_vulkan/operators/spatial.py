"""Operators on images other than convolutions: pooling, resizing, sampling, padding, pixel shuffle."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.constraints import dtypes, equals, rank
from delegatekit_toolkit.sizes import Size, dynamic_count, largest
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Argument, Tensor
from .conditions import far_windows, short_loops
from .program import Lower, ProgramBuilder

_FLOATS: Final = dtypes("float32", "float16")
_INT32: Final = 1 << 31
_WIDE: Final = "the device computes in 32 bits"

# -- pooling -----------------------------------------------------------------------------------------------------------


def _windows(call: Call) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, stride and padding, each for height and width: the runtime knows no defaults."""
    kernel = per_axis(call["kernel_size"], 2)
    strides = per_axis(call["stride"], 2, default=0)
    return kernel, strides if any(strides) else kernel, per_axis(call["padding"], 2)


def _average(b: ProgramBuilder, call: Call) -> Tensor:
    rest: list[Argument] = [call["ceil_mode"], call["count_include_pad"], call["divisor_override"]]
    return b.call("aten.avg_pool2d.default", [b.tensor(call["self"]), *_windows(call), *rest], b.shape(call))


def _maximum_arguments(b: ProgramBuilder, call: Call) -> list[Argument]:
    return [b.tensor(call["self"]), *_windows(call), per_axis(call["dilation"], 2), call["ceil_mode"]]


def _maximum(b: ProgramBuilder, call: Call) -> Tensor:
    return b.call("aten.max_pool2d.default", _maximum_arguments(b, call), b.shape(call))


def _maximum_with_indices(b: ProgramBuilder, call: Call) -> tuple[Tensor, ...]:
    arguments = _maximum_arguments(b, call)
    results = [(shape_of(result), b.datatype(result.dtype)) for result in call.results]
    return b.calls("aten.max_pool2d_with_indices.default", arguments, results)


def few_elements(call: Call) -> str | None:
    """At most about 60000 elements in a window."""
    sizes = [largest(size) for size in shape_of(call["self"])[-2:]]
    return short_loops(*map(min, per_axis(call["kernel_size"], 2), sizes))


def near_windows(call: Call) -> str | None:
    """stride, and dilation times kernel_size, are below 2^24."""
    kernel, strides, _ = _windows(call)
    dilation = per_axis(call["dilation"], 2) if call.has("dilation") else (1, 1)
    return far_windows(*strides, *(size * step for size, step in zip(kernel, dilation, strict=True)))


def narrow_divisor(call: Call) -> str | None:
    """A divisor_override fits 32 bits."""
    divisor = call["divisor_override"]
    return f"divisor_override = {divisor}: {_WIDE}" if divisor is not None and not -_INT32 < divisor < _INT32 else None


def float_values(call: Call) -> str | None:
    """Values are float32 or float16."""
    name = call["self"].dtype_name
    return None if name in ("float32", "float16") else f"self is {name}: float32 or float16 are taken"


def _pieces(call: Call) -> tuple[Size, ...] | None:
    """Height and width of the windows of an adaptive pooling; None where they differ from place to place."""
    before, after = shape_of(call["self"])[-2:], shape_of(call.result)[-2:]
    if any(old % new != 0 for old, new in zip(before, after, strict=True)):
        return None
    return tuple(old // new for old, new in zip(before, after, strict=True))


def equal_windows(call: Call) -> str | None:
    """The result's sizes divide the input's, in every call by the same number."""
    pieces = _pieces(call)
    before, after = shape_of(call["self"])[-2:], shape_of(call.result)[-2:]
    if pieces is None:
        return f"{before} to {after} needs windows of different sizes"
    if dynamic_count(pieces):
        return f"{before} to {after} needs windows that change from call to call"
    return short_loops(*map(largest, pieces))


def _adaptive_average(b: ProgramBuilder, call: Call) -> Tensor:
    window = _pieces(call)
    assert window is not None
    height, width = window
    assert isinstance(height, int) and isinstance(width, int)
    arguments: list[Argument] = [b.tensor(call["self"]), (height, width), (height, width), (0, 0), False, True, None]
    return b.call("aten.avg_pool2d.default", arguments, b.shape(call))


# -- resizing and sampling ---------------------------------------------------------------------------------------------


def exact_ratio(call: Call) -> str | None:
    """Scale factors are exactly the ratio of the sizes, by which the runtime computes."""
    factors = call["scale_factors"]
    if not factors or (call.has("align_corners") and call["align_corners"]):
        return None
    before, after = shape_of(call["input"])[2:], shape_of(call.result)[2:]
    if all(old * factor == new for old, factor, new in zip(before, factors, after, strict=True)):
        return None
    return f"scale_factors {list(factors)} are not the ratio of the sizes"


def several_pixels(call: Call) -> str | None:
    """With align_corners, the result has more than one row and column: the runtime would divide by 0."""
    after = shape_of(call.result)[2:]
    return f"a result of {after} with align_corners" if call["align_corners"] and 1 in after else None


def _new_size(call: Call) -> tuple[int, ...]:
    """Height and width of the result, which do not change: the runtime has them computed when it loads the program."""
    return tuple(map(largest, shape_of(call.result)[2:]))


def _nearest(b: ProgramBuilder, call: Call) -> Tensor:
    return b.call("aten.upsample_nearest2d.vec", [b.tensor(call["input"]), _new_size(call), None], b.shape(call))


def _bilinear(b: ProgramBuilder, call: Call) -> Tensor:
    arguments: list[Argument] = [b.tensor(call["input"]), _new_size(call), bool(call["align_corners"]), None]
    return b.call("aten.upsample_bilinear2d.vec", arguments, b.shape(call))


def _grid_sample(b: ProgramBuilder, call: Call) -> Tensor:
    x, grid = b.tensor(call["input"]), b.tensor(call["grid"])
    return b.call("aten.grid_sampler_2d.default", [x, grid, 0, 1, True], b.shape(call))


# -- moving pixels -----------------------------------------------------------------------------------------------------


def _pixel_shuffle(b: ProgramBuilder, call: Call) -> Tensor:
    return b.call("aten.pixel_shuffle.default", [b.tensor(call["self"]), call["upscale_factor"]], b.shape(call))


def known_padding(call: Call) -> str | None:
    """Padding does not change from call to call; at most 4 axes; the number fits the device."""
    pads, value, axes = call["pad"], call["value"], call["self"].rank
    if axes > 4:
        return f"self has {axes} axes: 4 are taken"
    if not all(isinstance(pad, int) for pad in pads):
        return f"pad {list(pads)} changes from call to call"
    if not call["self"].dtype.is_floating_point and not -_INT32 <= value < _INT32:
        return f"value = {value}: {_WIDE}"
    return None


def _pad(b: ProgramBuilder, call: Call) -> Tensor:
    value = call["value"]
    number = float(value) if call["self"].dtype.is_floating_point else int(value)
    return b.call("aten.constant_pad_nd.default", [b.tensor(call["self"]), tuple(call["pad"]), number], b.shape(call))


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("avg_pool2d.default", _average, rank("self", 3, 4), _FLOATS, few_elements, near_windows, narrow_divisor),
    row("max_pool2d.default", _maximum, rank("self", 3, 4), _FLOATS, few_elements, near_windows, keep=True),
    row(
        "max_pool2d_with_indices.default",
        _maximum_with_indices,
        rank("self", 3, 4),
        float_values,
        few_elements,
        near_windows,
    ),
    row(
        "_adaptive_avg_pool2d.default",
        _adaptive_average,
        rank("self", 3, 4),
        _FLOATS,
        equal_windows,
        runs=("aten.avg_pool2d.default",),
    ),
    row("upsample_nearest2d.vec", _nearest, _FLOATS, exact_ratio, keep=True),
    row("upsample_bilinear2d.vec", _bilinear, _FLOATS, exact_ratio, several_pixels, keep=True),
    row(
        "grid_sampler_2d.default",
        _grid_sample,
        _FLOATS,
        equals("interpolation_mode", 0),
        equals("padding_mode", 1),
        equals("align_corners", True),
        keep=True,
    ),
    row("pixel_shuffle.default", _pixel_shuffle, rank("self", 3, 4), _FLOATS, keep=True),
    row(
        "constant_pad_nd.default",
        _pad,
        dtypes("float32", "float16", "int32", "int64", "bool"),
        known_padding,
    ),
)
