"""Normalization of rows and groups with one call of the runtime."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import rms_epsilon
from delegatekit_toolkit.constraints import constant
from delegatekit_toolkit.sizes import Size
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor
from .conditions import FLOATS, few_changing
from .program import Lower, ProgramBuilder

#: Axes that the runtime's norms of rows are used with.
_ROW_RANKS: Final = (2, 3, 4)


def _is_viewed(call: Call) -> bool:
    return call["input"].rank not in _ROW_RANKS or len(call["normalized_shape"]) != 1


def known_rows(call: Call) -> str | None:
    """The size of what is normalized does not change."""
    changing = not isinstance(math.prod(_row_sizes(call)), int)
    return f"normalizes over {call['normalized_shape']}, which changes from call to call" if changing else None


def _row_sizes(call: Call) -> tuple[Size, ...]:
    return shape_of(call["input"])[-len(call["normalized_shape"]) :]


def _as_rows(b: ProgramBuilder, call: Call) -> Tensor:
    """The input with one axis to normalize over, the last of 2 to 4."""
    x = b.tensor(call["input"])
    if not _is_viewed(call):
        return x
    sizes = _row_sizes(call)
    return b.view(x, (math.prod(x.shape[: x.rank - len(sizes)]), math.prod(sizes)))


def _parameter(b: ProgramBuilder, operand: Operand | None, count: int, number: float, like: torch.dtype) -> Tensor:
    """A weight or bias as a vector; one that is missing has no effect."""
    data = None if operand is None else operand.constant
    return b.constant(torch.full((count,), number, dtype=like) if data is None else data.reshape(count))


def _layer_norm(b: ProgramBuilder, call: Call) -> Tensor:
    return _layer_norms(b, call)[0]


def _layer_norms(b: ProgramBuilder, call: Call) -> tuple[Tensor, ...]:
    x = _as_rows(b, call)
    size = x.sizes[-1]
    weight = _parameter(b, call["weight"], size, 1.0, call["input"].dtype)
    bias = _parameter(b, call["bias"], size, 0.0, call["input"].dtype)
    shapes = (x.shape, (*x.shape[:-1], 1), (*x.shape[:-1], 1))
    made = b.calls(
        "aten.native_layer_norm.default",
        [x, (size,), weight, bias, float(call["eps"])],
        [(shape, x.datatype) for shape in shapes],
    )
    return tuple(b.view(value, shape_of(result)) for value, result in zip(made, call.results, strict=False))


def _rms_norm(b: ProgramBuilder, call: Call) -> Tensor:
    x = _as_rows(b, call)
    weight = _parameter(b, call["weight"], x.sizes[-1], 1.0, call["input"].dtype)
    return b.view(b.call("et_vk.rms_norm.default", [x, weight, rms_epsilon(call)], x.shape), b.shape(call))


def enough_axes(call: Call) -> str | None:
    """The input has a batch and channels."""
    rank = call["input"].rank
    return None if rank >= 2 else f"input has {rank} axis"


def _group_norm(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["input"])
    batch, channels, *rest = x.sizes
    image = (batch, channels, math.prod(rest[:-1]), *(rest[-1:] or [1]))
    weight = _parameter(b, call["weight"], channels, 1.0, call["input"].dtype)
    bias = _parameter(b, call["bias"], channels, 0.0, call["input"].dtype)
    groups = call["num_groups"]
    arguments = [b.view(x, image), weight, bias, batch, channels, math.prod(rest), groups, float(call["eps"])]
    shapes = (image, (batch, groups), (batch, groups))
    made = b.calls("aten.native_group_norm.default", arguments, [(shape, x.datatype) for shape in shapes])
    return b.view(made[0], x.shape)


_VIEWED: Final = few_changing("input", _is_viewed, "it has not 2 to 4 axes or several are normalized")
_CONSTANTS: Final = constant("weight", "bias")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("layer_norm.default", _layer_norm, FLOATS, known_rows, _VIEWED, _CONSTANTS, keep=True),
    row("native_layer_norm.default", _layer_norms, FLOATS, known_rows, _VIEWED, _CONSTANTS, runs=()),
    row("rms_norm.default", _rms_norm, FLOATS, known_rows, _VIEWED, constant("weight"), keep=True),
    row(
        "group_norm.default",
        _group_norm,
        FLOATS,
        enough_axes,
        _CONSTANTS,
        keep=True,
        static_only=True,
        runs=("aten.native_group_norm.default",),
    ),
)
