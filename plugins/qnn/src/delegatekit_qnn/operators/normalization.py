"""Normalizations, each as a whole."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.layout import identity, to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Array, Scalar, Tensor, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, known
from .program import Lower, ProgramBuilder
from .weights import bias_of


def _parameters(b: ProgramBuilder, call: Call, x: Tensor, count: int) -> list[Tensor]:
    """Weight and bias of a normalization, ones and zeros where there are none."""
    weight: Operand | None = call["weight"]
    numbers: Array = np.ones(count, np.float32) if weight is None else b.numbers(weight).reshape(count)
    bias: Operand | None = call.get("bias")
    if not b.is_fixed:
        offsets: Array = np.zeros(count, np.float32) if bias is None else b.numbers(bias).reshape(count)
        return [b.constant(numbers), b.constant(offsets)]
    factors = b.symmetric_constant(numbers)
    assert factors.encoding is not None
    return [factors, bias_of(b, bias, count, x, np.array([factors.encoding.scale]))]


def _normalized(kind: str, weight_axes: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["input"])
        tensor = b.dense(x)
        count = math.prod(call[weight_axes])
        # The processor normalizes the last of at most four axes.
        rows = tensor.shape if tensor.shape[-1] == count and x.rank < 5 else (-1, count)
        rows = (math.prod(tensor.shape) // count, count) if rows[0] == -1 else rows
        tensor = b.reshaped(tensor, rows)
        datatype, encoding = b.result_type(call)
        made = b.emit(
            kind,
            [tensor, *_parameters(b, call, tensor, count)],
            rows,
            datatype,
            encoding,
            epsilon=_epsilon(call),
            axes=uint32(len(rows) - 1),
        )
        return Value(b.reshaped(made, x.shape), identity(x.rank))

    return lower


def _epsilon(call: Call) -> Scalar:
    epsilon = call["eps"]
    return Scalar(DataType.FLOAT32, float(np.finfo(np.float32).eps) if epsilon is None else epsilon)


def _in_groups(b: ProgramBuilder, call: Call) -> Value:
    """Images with the channels last; rows are images of one row."""
    x = b.activation(call["input"])
    batch, channels, *places = x.shape
    order = to_channels_last(x.rank)
    tensor = b.stored(x, order)
    images = (batch, *places, channels) if len(places) == 2 else (batch, 1, math.prod(places), channels)
    tensor = b.reshaped(tensor, images)
    datatype, encoding = b.result_type(call)
    made = b.emit(
        "GroupNorm",
        [tensor, *_parameters(b, call, tensor, channels)],
        images,
        datatype,
        encoding,
        epsilon=_epsilon(call),
        group=Scalar(DataType.UINT32, call["num_groups"]),
    )
    return Value(b.reshaped(made, (batch, *places, channels)), order)


def channels(call: Call) -> str | None:
    """The input has a batch and channels."""
    axes = call["input"].rank
    return None if axes >= 2 else f"input has {axes} axis"


def several_elements(call: Call) -> str | None:
    """Integers of several elements have a norm: of one the library compiles none."""
    return None if math.prod(call["normalized_shape"]) > 1 else "a norm of one element"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "layer_norm.default",
        _normalized("LayerNorm", "normalized_shape"),
        REAL,
        has_axes("input"),
        known("weight", "bias"),
        keep=True,
        fixed=True,
        weights=("weight", "bias"),
    ),
    row(
        "rms_norm.default",
        _normalized("RmsNorm", "normalized_shape"),
        REAL,
        has_axes("input"),
        known("weight"),
        keep=True,
        fixed=several_elements,
        weights=("weight",),
    ),
    row(
        "group_norm.default", _in_groups, REAL, channels, known("weight", "bias"), keep=True, weights=("weight", "bias")
    ),
)
