"""Operators that move values: on integers, in the scale of the operand, then in that of the result."""

from __future__ import annotations

from typing import Any, Final

from delegatekit_api import Call
from delegatekit_api.operators import RuntimeTensor
from delegatekit_toolkit.support import row

from ..ir.images import padded
from ..ir.numbers import Scale
from ..ir.program import ProgramBuilder
from .common import Rows

#: The axes that the library's transpose and pad take.
_MOST_AXES: Final = 4


def fills(call: Call) -> str | None:
    """At most 4 axes; nothing is cut off."""
    if call["self"].rank > _MOST_AXES:
        return f"its input has {call['self'].rank} axes, more than {_MOST_AXES}"
    return None if min(call["pad"], default=0) >= 0 else f"cuts off: {tuple(call['pad'])}"


def _view(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    made = b.reshaped(b.integers(call["self"]), call.result.shape)
    return b.rescaled(made, b.scale(call["self"]), result)


def _permute(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    x, dims = b.as_written(b.integers(call["self"])), tuple(call["dims"])
    if len(dims) <= _MOST_AXES:
        made = b.call("transpose", x, dims, shape=call.result.shape)
    else:
        made = b.own("permute_copy.out", x, dims, shape=call.result.shape)
    return b.rescaled(made, b.scale(call["self"]), result)


def _pad(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    before = b.scale(call["self"])
    x = b.rescaled(b.integers(call["self"]), before, result)
    rank, pad = len(x.spec.shape), call["pad"]
    low, high = [0] * rank, [0] * rank
    for place in range(len(pad) // 2):
        low[rank - 1 - place], high[rank - 1 - place] = pad[2 * place], pad[2 * place + 1]
    return padded(b, x, low, high, result.integer(float(call["value"] or 0)))


def _cat(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    parts = [b.rescaled(b.integers(item), b.scale(item), result) for item in call["tensors"]]
    return b.own("cat.out", tuple(map(b.as_written, parts)), call["dim"], shape=call.result.shape)


def _copied(operator: str, *names: str) -> Any:
    def lower(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
        x = b.as_written(b.integers(call["self"]))
        made = b.own(operator, x, *(call[name] for name in names), shape=call.result.shape)
        return b.rescaled(made, b.scale(call["self"]), result)

    return lower


ROWS: Rows = (
    row("view_copy.default unsqueeze_copy.default squeeze_copy.dims", _view, passenger=True),
    row("permute_copy.default", _permute, passenger=True),
    row("constant_pad_nd.default", _pad, fills, passenger=True),
    row("cat.default", _cat, passenger=True),
    row("slice_copy.Tensor", _copied("slice_copy.Tensor_out", "dim", "start", "end", "step"), passenger=True),
    row("select_copy.int", _copied("select_copy.int_out", "dim", "index"), passenger=True),
    row("expand_copy.default", _copied("expand_copy.out", "size", "implicit"), passenger=True),
)
