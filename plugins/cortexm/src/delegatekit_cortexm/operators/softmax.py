"""Softmax over the last axis."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_api.operators import RuntimeTensor
from delegatekit_toolkit.support import row

from ..ir.numbers import Scale, softmax_factor
from ..ir.program import ProgramBuilder
from .common import Rows

#: The library's results are in steps of 1/256 from 0 on.
PROBABILITIES: Final = Scale(1.0 / 256.0, -128)


def last_axis(call: Call) -> str | None:
    """Over the last axis."""
    rank = call["self"].rank
    if not rank:
        return "its input is a single number"
    return None if call["dim"] % rank == rank - 1 else f"over axis {call['dim']} of {rank}: the last one is taken"


def _softmax(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    x, before = b.as_written(b.integers(call["self"])), b.scale(call["self"])
    rank = len(x.spec.shape)
    arguments = (before.zero_point, PROBABILITIES.zero_point, *softmax_factor(before.scale))
    made = b.call("softmax", x, rank - 1, *arguments, shape=x.spec.shape)
    return b.rescaled(made, PROBABILITIES, result)


ROWS: Rows = (row("_softmax.default", _softmax, last_axis),)
