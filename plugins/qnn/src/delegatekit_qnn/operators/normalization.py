"""Normalizations, each as a whole."""

from __future__ import annotations

from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Array, Scalar, Tensor, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, has_axes, known
from .convolution import bias_of
from .program import Lower, ProgramBuilder


def _parameters(b: ProgramBuilder, call: Call, x: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Weight and bias of a normalization, ones and zeros where there are none."""
    weight: Operand | None = call["weight"]
    numbers: Array = np.ones(shape, np.float32) if weight is None else b.numbers(weight)
    bias: Operand | None = call.get("bias")
    zeros = np.zeros(shape, np.float32)
    if not b.is_fixed:
        return [b.constant(numbers), b.constant(zeros if bias is None else b.numbers(bias))]
    factors = b.symmetric_constant(numbers)
    assert factors.encoding is not None
    offsets = bias_of(b, bias, numbers.size, x, np.array([factors.encoding.scale]))
    return [factors, offsets]


def _normalized(kind: str, weight_axes: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["input"])
        tensor = b.dense(x)
        shape = tuple(call[weight_axes])
        axes = range(x.rank - len(shape), x.rank)
        epsilon = call["eps"]
        if epsilon is None:
            epsilon = float(np.finfo(np.float32).eps)
        datatype, encoding = b.result_type(call)
        made = b.emit(
            kind,
            [tensor, *_parameters(b, call, tensor, shape)],
            tensor.shape,
            datatype,
            encoding,
            epsilon=Scalar(DataType.FLOAT32, epsilon),
            axes=uint32(*axes),
        )
        return Value(made, tuple(range(x.rank)))

    return lower


def last_axis(call: Call) -> str | None:
    """Along the last axis."""
    shape = call["normalized_shape"]
    return None if len(shape) == 1 else f"along {len(shape)} axes: QNN normalizes along the last one"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "layer_norm.default",
        _normalized("LayerNorm", "normalized_shape"),
        REAL,
        has_axes("input"),
        last_axis,
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
        last_axis,
        known("weight"),
        keep=True,
        fixed=True,
        weights=("weight",),
    ),
)
