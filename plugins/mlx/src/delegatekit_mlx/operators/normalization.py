"""Normalization of rows and groups."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import rms_epsilon
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.expressions import is_fixed
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import REAL, add, in_float32, mul, tensor


def _rows(b: GraphBuilder, call: Call, x: Value) -> Value:
    """The normalized axes as one."""
    count = len(call["normalized_shape"])
    return b.reshape(x, (*x.shape[: x.rank - count], math.prod(x.shape[x.rank - count :])))


def _parameter(b: GraphBuilder, call: Call, name: str, dtype: torch.dtype) -> Value | None:
    if call[name] is None:
        return None
    value = b.cast(tensor(b, call, name), dtype)
    return b.reshape(value, (math.prod(value.shape),))


def _layer_norm(b: GraphBuilder, call: Call) -> Value:
    def make(x: Value) -> Value:
        fields: dict[str, Any] = {name: _parameter(b, call, name, x.dtype) for name in ("weight", "bias")}
        rows = _rows(b, call, x)
        return b.reshape(b.op(schema.LayerNormNode, rows.shape, x.dtype, x=rows, eps=call["eps"], **fields), x.shape)

    return in_float32(b, tensor(b, call, "input"), make)


def _rms_norm(b: GraphBuilder, call: Call) -> Value:
    def make(x: Value) -> Value:
        rows, weight = _rows(b, call, x), _parameter(b, call, "weight", x.dtype)
        return b.reshape(
            b.op(schema.RMSNormNode, rows.shape, x.dtype, x=rows, eps=rms_epsilon(call), weight=weight), x.shape
        )

    return in_float32(b, tensor(b, call, "input"), make)


def _group_norm(b: GraphBuilder, call: Call) -> Value:
    groups = call["num_groups"]

    def make(x: Value) -> Value:
        batch, channels, *rest = x.shape
        rows = b.reshape(x, (batch, groups, math.prod((channels // groups, *rest))))
        made = b.reshape(b.op(schema.LayerNormNode, rows.shape, x.dtype, x=rows, eps=call["eps"]), x.shape)
        for name, combine in (("weight", mul), ("bias", add)):
            if call[name] is not None:
                parameter = b.cast(tensor(b, call, name), x.dtype)
                made = combine(b, made, b.reshape(parameter, (channels, *[1] * len(rest))))
        return made

    return in_float32(b, tensor(b, call, "input"), make)


def fixed_channels(call: Call) -> str | None:
    """The number of channels is fixed."""
    return None if is_fixed(call["input"].shape[1]) else "the number of channels changes from call to call"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("layer_norm.default", _layer_norm, REAL, has_axes("input"), keep=True),
    row("rms_norm.default", _rms_norm, REAL, has_axes("input"), keep=True),
    row("group_norm.default", _group_norm, REAL, fixed_channels, keep=True),
)
