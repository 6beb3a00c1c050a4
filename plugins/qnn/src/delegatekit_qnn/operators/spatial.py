"""Windows over images: pooling, pixel shuffles."""

from __future__ import annotations

from typing import Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.layout import to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Parameter, Scalar, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL
from .program import Lower, ProgramBuilder


def _pooled(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        window = per_axis(call["kernel_size"], 2)
        stride = per_axis(call["stride"], 2) or window
        pad = per_axis(call["padding"], 2, 0)
        parameters: dict[str, Parameter] = {
            "filter_size": uint32(*window),
            "stride": uint32(*stride),
            "pad_amount": np.array([[item, item] for item in pad], dtype=np.uint32),
            "rounding_mode": Scalar(DataType.UINT32, int(call["ceil_mode"])),
        }
        if kind == "PoolAvg2d":
            parameters["count_pad_for_edges"] = Scalar(DataType.BOOL, bool(call["count_include_pad"]))
        batched = x.rank == 4
        order = to_channels_last(4)
        if not batched:
            x = Value(b.reshaped(b.dense(x), (1, *x.shape)), (0, 1, 2, 3))
        tensor = b.stored(x, order)
        n, c, h, w = (1, *call.results[0].shape) if not batched else call.results[0].shape
        datatype, encoding = b.result_type(call)
        made = b.emit(kind, [tensor], (n, h, w, c), datatype, encoding, **parameters)
        if batched:
            return Value(made, order)
        return Value(b.reshaped(b.dense(Value(made, order)), (c, h, w)), (0, 1, 2))

    return lower


def _shuffled(kind: str, factor: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        order = to_channels_last(4)
        tensor = b.stored(x, order)
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
        return Value(made, order)

    return lower


# -- conditions --------------------------------------------------------------------------------------------------------


def plain_windows(call: Call) -> str | None:
    """Windows without dilation, whose divisor is their size."""
    if set(per_axis(call.get("dilation", 1), 2, 1)) != {1}:
        return f"dilation = {call['dilation']}: 1 is taken"
    if call.get("divisor_override") is not None:
        return f"divisor_override = {call['divisor_override']}"
    return None


def images(call: Call) -> str | None:
    """The input has four axes."""
    return None if call["self"].rank == 4 else f"self has {call['self'].rank} axes: 4 are taken"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("max_pool2d.default", _pooled("PoolMax2d"), REAL, plain_windows, keep=True, fixed=True),
    row("avg_pool2d.default", _pooled("PoolAvg2d"), REAL, plain_windows, fixed=True),
    row("pixel_shuffle.default", _shuffled("DepthToSpace", "upscale_factor"), REAL, images, keep=True, fixed=True),
    row("pixel_unshuffle.default", _shuffled("SpaceToDepth", "downscale_factor"), REAL, images, keep=True, fixed=True),
)
