"""Normalization of rows and groups."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import rms_epsilon
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed
from .common import REAL, add, div, mul, reduced, tensor, unary


def _normalized(b: ModelBuilder, x: Value, axes: range, small: float) -> Value:
    made = b.op("mvn", x, b.integers(axes).output, normalize_variance=True, eps=small, eps_mode="INSIDE_SQRT")
    return b.declare(made, x.shape)


def _layer_norm(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call, "input")
    made = _normalized(b, x, range(x.rank - len(call["normalized_shape"]), x.rank), call["eps"])
    for name, combine in (("weight", mul), ("bias", add)):
        if call[name] is not None:
            made = combine(b, made, tensor(b, call, name))
    return made


def _rms_norm(b: ModelBuilder, call: Call) -> Value:
    x, small = tensor(b, call, "input"), rms_epsilon(call)
    axes = range(x.rank - len(call["normalized_shape"]), x.rank)
    square = add(b, reduced(b, "mean", mul(b, x, x), axes), small)
    made = div(b, x, unary(b, "sqrt", square))
    return made if call["weight"] is None else mul(b, made, tensor(b, call, "weight"))


def fixed_parts(call: Call) -> str | None:
    """Only the batch changes."""
    return None if all(map(is_fixed, call["input"].shape[1:])) else "sizes beside the batch change from call to call"


def _group_norm(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call, "input")
    batch, channels, *rest = call["input"].shape
    groups = call["num_groups"]
    rows = b.reshape(x, (batch, groups, math.prod((channels // groups, *rest))))
    made = b.reshape(_normalized(b, rows, range(2, 3), call["eps"]), x.shape)
    for name, combine in (("weight", mul), ("bias", add)):
        if call[name] is not None:
            made = combine(b, made, b.reshape(tensor(b, call, name), (channels, *[1] * len(rest))))
    return made


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("layer_norm.default", _layer_norm, REAL, has_axes("input"), keep=True),
    row("rms_norm.default", _rms_norm, REAL, has_axes("input"), keep=True),
    row("group_norm.default", _group_norm, REAL, fixed_parts, keep=True),
)
