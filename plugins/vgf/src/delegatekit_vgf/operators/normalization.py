"""Normalization of rows and groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import rms_epsilon
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import DType, Rsqrt

from ..ir.builder import Lower, Value, VgfBuilder
from .common import REAL, add, mean, mul, sub, tensor


def _scaled(b: VgfBuilder, x: Value, squares: Value, axes: Sequence[int], small: float) -> Value:
    """x over the root of the mean of squares and a small number."""
    return b.product(x, b.apply(Rsqrt(), add(b, mean(b, squares, axes, True), small)))


def _normalized(b: VgfBuilder, x: Value, axes: Sequence[int], small: float) -> Value:
    rest = sub(b, x, mean(b, x, axes, True))
    return _scaled(b, rest, b.product(rest, rest), axes, small)


def _precise(b: VgfBuilder, call: Call) -> Value:
    """The input in float32: squares soon leave float16."""
    return b.cast(tensor(b, call, "input"), DType.FP32)


def _finished(b: VgfBuilder, call: Call, made: Value, shape: Sequence[int]) -> Value:
    """Scaled and moved by the parameters, in the result's type."""
    for name, combine in (("weight", mul), ("bias", add)):
        if call.has(name) and call[name] is not None:
            made = combine(b, made, b.shaped(b.cast(tensor(b, call, name), DType.FP32), shape))
    return b.cast(made, tensor(b, call, "input").tensor.dtype)


def _last(call: Call) -> tuple[int, ...]:
    rank = call["input"].rank
    return tuple(range(rank - len(call["normalized_shape"]), rank))


def _layer_norm(b: VgfBuilder, call: Call) -> Value:
    made = _normalized(b, _precise(b, call), _last(call), call["eps"])
    return _finished(b, call, made, call["normalized_shape"])


def _rms_norm(b: VgfBuilder, call: Call) -> Value:
    x = _precise(b, call)
    made = _scaled(b, x, b.product(x, x), _last(call), rms_epsilon(call))
    return _finished(b, call, made, call["normalized_shape"])


def _group_norm(b: VgfBuilder, call: Call) -> Value:
    batch, channels, *rest = call["input"].shape
    groups = call["num_groups"]
    rows = b.shaped(_precise(b, call), (batch, groups, math.prod((channels // groups, *rest))))
    made = b.shaped(_normalized(b, rows, (2,), call["eps"]), (batch, channels, *rest))
    return _finished(b, call, made, (channels, *[1] * len(rest)))


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("layer_norm.default", _layer_norm, REAL, has_axes("input"), keep=True),
    row("rms_norm.default", _rms_norm, REAL, has_axes("input"), keep=True),
    row("group_norm.default", _group_norm, REAL, keep=True),
)
