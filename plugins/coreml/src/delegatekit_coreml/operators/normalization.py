"""Normalization of rows and groups."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import rms_epsilon
from delegatekit_toolkit.constraints import constant, has_axes
from delegatekit_toolkit.expressions import is_fixed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of, numbers
from ..ir.types import DataType
from .common import REAL, add, div, epsilon, largest_sizes, mul, reduced, reshaped, tensor, unary
from .program import Lower, ProgramBuilder


def _layer_norm(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call, "input")
    rank, count = len(x.shape), len(call["normalized_shape"])
    parameters = _known(b, call, gamma="weight", beta="bias")
    if "beta" in parameters and "gamma" not in parameters:
        parameters["gamma"] = b.constant(torch.ones(tuple(call["normalized_shape"])))
    return _normalized(b, x, tuple(range(rank - count, rank)), call["eps"], **parameters)


def _known(b: ProgramBuilder, call: Call, **names: str) -> dict[str, Any]:
    return {name: b.value(call[operand]) for name, operand in names.items() if call[operand] is not None}


def _normalized(b: ProgramBuilder, x: Var, axes: tuple[int, ...], small: float, **parameters: Var) -> Var:
    more = {"epsilon": epsilon(b, small, datatype_of(x))}
    return b.call("layer_norm", x=x, axes=numbers(axes), **parameters, **more)


def _rms_norm(b: ProgramBuilder, call: Call) -> Var:
    """x over the root of its mean square. In float16 squares would soon leave the type: x is divided by its largest
    number first, and the epsilon by its square."""
    x, small = tensor(b, call, "input"), rms_epsilon(call)
    rank, count = len(x.shape), len(call["normalized_shape"])
    axes = tuple(range(rank - count, rank))
    if datatype_of(x) is DataType.FLOAT16:
        largest = largest_sizes(b, x, axes)
        x = div(b, x, largest)
        shift = div(b, math.sqrt(small), largest)
        square = add(b, reduced(b, "reduce_mean", mul(b, x, x), axes), mul(b, shift, shift))
    else:
        square = add(b, reduced(b, "reduce_mean", mul(b, x, x), axes), small)
    result = div(b, x, unary(b, "sqrt", square))
    weight: Operand | None = call["weight"]
    return result if weight is None else mul(b, result, b.value(weight))


def known_channels(call: Call) -> str | None:
    """The number of channels is known."""
    return None if is_fixed(call["input"].shape[1]) else "the number of channels changes from call to call"


def _group_norm(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call, "input")
    batch, channels = x.shape[:2]
    groups = call["num_groups"]
    rows = reshaped(b, x, (batch, groups, math.prod((channels // groups, *x.shape[2:]))))
    result = reshaped(b, _normalized(b, rows, (2,), call["eps"]), x.shape)
    for name, combine in (("weight", mul), ("bias", add)):
        operand = call[name]
        if operand is not None:
            shape = (channels, *[1] * (len(x.shape) - 2))
            known = operand.constant
            parameter = reshaped(b, b.value(operand), shape) if known is None else b.constant(known.reshape(shape))
            result = combine(b, result, parameter)
    return result


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("layer_norm.default", _layer_norm, REAL, has_axes("input"), constant("weight", "bias"), keep=True),
    row("rms_norm.default", _rms_norm, REAL, has_axes("input"), constant("weight"), keep=True),
    row("group_norm.default", _group_norm, REAL, known_channels, keep=True),
)
