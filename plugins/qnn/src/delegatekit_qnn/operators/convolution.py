"""Convolutions of one to three dimensions, plain, depthwise, grouped and transposed."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.layout import to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Array, Scalar, Tensor, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, known
from .program import Lower, ProgramBuilder
from .weights import bias_of, integer_weight, least_scales, weight_of, weights_as_integers
from .windows import setting, windows_beyond_padding

#: The settings of a convolution that are given for each axis.
_SETTINGS: Final = ("stride", "padding", "dilation", "output_padding")
#: Elements of a window.
_WINDOW: Final = 3072


def _convolve(b: ProgramBuilder, call: Call) -> Value:
    x = b.activation(call["input"])
    spatial = x.rank - 2
    stride, padding, dilation, extra = (setting(call, name) for name in _SETTINGS)
    groups = call["groups"]
    source = call["weight"]
    sizes = list(source.shape)
    result = list(call.result.shape)
    if not call["transposed"]:
        # Longer steps lead to no other place, but the library sizes its tiles by them.
        around = zip(stride, x.shape[2:], padding, strict=True)
        stride = [min(step, size + 2 * pad) for step, size, pad in around]
        # Nor do gaps in windows of one element; with steps, the library compiles no 16-bit integers over them.
        dilation = [gap if size > 1 else 1 for gap, size in zip(dilation, sizes[2:], strict=True)]
    flat = spatial == 1
    tensor = b.stored(x, to_channels_last(x.rank))
    if flat:
        # One row.
        tensor = b.reshaped(tensor, (tensor.shape[0], 1, *tensor.shape[1:]))
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
        sizes = [*sizes[:2], 1, sizes[2]]
    transposed = call["transposed"]
    least = least_scales(b, call, call["bias"], tensor)
    kind, parameters, weight, scales = _kind(b, call, source, sizes, groups, least)
    padding_pairs = np.array([[pad, pad] for pad in padding], dtype=np.uint32)
    parameters |= {"stride": uint32(*stride), "pad_amount": padding_pairs}
    if transposed:
        parameters["output_padding"] = uint32(*([0, *extra] if flat else extra))
    else:
        parameters["dilation"] = uint32(*dilation)
    bias = bias_of(b, call["bias"], result[1], tensor, scales)
    datatype, encoding = b.result_type(call)
    shape = (result[0], *((1,) if flat else ()), *result[2:], result[1])
    made = b.emit(kind, [tensor, weight, bias], shape, datatype, encoding, **parameters)
    if flat:
        made = b.reshaped(made, (result[0], result[2], result[1]))
    return Value(made, to_channels_last(x.rank))


def _kind(
    b: ProgramBuilder, call: Call, source: Operand, sizes: list[int], groups: int, least: Array | None
) -> tuple[str, dict[str, Scalar | Array], Tensor, Array | None]:
    """The operation, its parameters of this kind, the weight as (..., height, width, in / group, out), its scales."""
    places, axes = tuple(range(2, source.rank)), len(sizes) - 2
    if call["transposed"]:
        shape = (*sizes[2:], sizes[0], sizes[1])
        weight, scales = weight_of(b, source, (*places, 0, 1), shape, len(shape) - 1, least)
        return f"TransposeConv{axes}d", {"group": Scalar(DataType.UINT32, groups)}, weight, scales
    shape = (*sizes[2:], sizes[1], sizes[0])
    weight, scales = weight_of(b, source, (*places, 1, 0), shape, len(shape) - 1, least)
    if axes == 2 and groups > 1 and sizes[1] == 1 and sizes[0] == groups:
        return "DepthWiseConv2d", {}, weight, scales
    return f"Conv{axes}d", {"group": Scalar(DataType.UINT32, groups)}, weight, scales


# -- conditions --------------------------------------------------------------------------------------------------------


def one_to_three_axes(call: Call) -> str | None:
    """One to three spatial axes, and a batch."""
    rank = call["input"].rank
    return None if rank in (3, 4, 5) else f"{rank - 2} spatial axes: 1 to 3 are taken"


def windows_within_memory(call: Call) -> str | None:
    """Windows of 3072 elements at most: 32 x 32 filters of them are in the processor's memory of 8 MiB at once."""
    elements = math.prod(call["weight"].shape[2:])
    return None if elements <= _WINDOW else f"a window of {elements} elements: {_WINDOW} are taken"


def plain_transposed(call: Call) -> str | None:
    """Transposed: no dilation; one group over three axes."""
    if not call["transposed"]:
        return None
    if set(call["dilation"]) - {1}:
        return f"a transposed convolution with dilation {list(call['dilation'])}"
    if call["input"].rank == 5 and call["groups"] > 1:
        return f"a transposed convolution over three axes with {call['groups']} groups: the processor mixes them up"
    return None


def transposed_within_windows(call: Call) -> str | None:
    """Transposed: where no window reaches, the library writes no bias; over three axes, all have one padding."""
    if not call["transposed"]:
        return None
    padding, extra = setting(call, "padding"), setting(call, "output_padding")
    deep = len(padding) == 3
    if deep and len(set(padding)) > 1:
        return f"a transposed convolution over three axes with padding {padding}: the processor takes one number"
    sizes, steps = call["weight"].shape[2:], setting(call, "stride")
    for axis, (size, step, before, after) in enumerate(zip(sizes, steps, padding, extra, strict=True)):
        # It computes whole steps, but of the first of three axes.
        computed = 0 if deep and axis == 0 else -size % step
        if after - before > computed:
            return f"a transposed convolution with output_padding {extra}: no window reaches the end"
    return None


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "convolution.default",
        _convolve,
        REAL,
        one_to_three_axes,
        known("weight", "bias"),
        windows_within_memory,
        plain_transposed,
        transposed_within_windows,
        windows_beyond_padding,
        weights_as_integers,
        fixed=integer_weight("weight"),
        weights=("weight",),
        keep=True,
    ),
)
