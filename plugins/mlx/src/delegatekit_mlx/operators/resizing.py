"""Operators that give images another size."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir.builder import GraphBuilder, Lower, Value
from .common import REAL, add, fixed, in_float32, mul, taken, tensor


def _factor(call: Call, axis: int) -> float | None:
    factors = call["scale_factors"]
    return None if not factors or call["output_size"] is not None else float(factors[axis])


def _nearest(b: GraphBuilder, call: Call) -> Value:
    """Pixels that are looked up, by PyTorch's own choice."""
    x, axes = tensor(b, call, "input"), call["input"].rank - 2
    resize = getattr(torch.ops.aten, call.operator.split(".")[1]).vec
    sizes = call["input"].shape[2:]
    for axis in range(axes):
        # PyTorch computes places in the type of the numbers: those of float32 are taken.
        numbers = torch.arange(sizes[axis], dtype=torch.float32)
        image = numbers.reshape([-1 if at == axis else 1 for at in range(axes)]).expand(1, 1, *sizes).contiguous()
        found = resize(image, call["output_size"], call["scale_factors"])[0, 0]
        places = found.movedim(axis, 0).reshape(found.shape[axis], -1)[:, 0]
        x = taken(b, x, 2 + axis, b.constant(places.to(torch.int64)))
    return x


def _weights(call: Call, axis: int) -> torch.Tensor:
    """The shares of an axis' pixels in those of the result, (wanted, size), in double precision."""
    size, wanted = call["input"].shape[2 + axis], call.result.shape[2 + axis]
    corners, factor = bool(call["align_corners"]), _factor(call, axis)
    pixels = torch.eye(size, dtype=torch.float64)
    if "linear" in call.operator:
        found = torch.ops.aten.upsample_linear1d.default(pixels[:, None], [wanted], corners, factor)
        return torch.as_tensor(found[:, 0].t())
    flat = torch.ops.aten.upsample_bicubic2d.default(pixels[:, None, None], [1, wanted], corners, 1.0, factor)
    return torch.as_tensor(flat[:, 0, 0].t())


def _mixed(b: GraphBuilder, call: Call) -> Value:
    """Neighbors that are looked up, times their shares, one axis after the other."""

    def make(x: Value) -> Value:
        for axis in range(call["input"].rank - 2):
            x = _mixed_along(b, x, 2 + axis, _weights(call, axis))
        return x

    return in_float32(b, tensor(b, call, "input"), make)


def _mixed_along(b: GraphBuilder, x: Value, axis: int, weights: torch.Tensor) -> Value:
    most = int((weights != 0).sum(1).max())
    places = weights.abs().topk(most, dim=1).indices.sort(1).values
    shares = weights.gather(1, places).float()
    made = None
    for column in range(most):
        shape = [-1 if at == axis else 1 for at in range(x.rank)]
        part = mul(
            b,
            taken(b, x, axis, b.constant(places[:, column].clone())),
            b.constant(shares[:, column].reshape(shape).clone()),
        )
        made = part if made is None else add(b, made, part)
    assert made is not None
    return made


def known_sizes(call: Call) -> str | None:
    """Sizes of images are fixed."""
    sizes = (*call["input"].shape[2:], *call.result.shape[2:])
    return None if fixed(sizes) else "the size of the images changes from call to call"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec", _nearest, REAL, known_sizes, keep=True),
    row(
        "upsample_linear1d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec upsample_trilinear3d.vec",
        _mixed,
        REAL,
        known_sizes,
        keep=True,
    ),
)
