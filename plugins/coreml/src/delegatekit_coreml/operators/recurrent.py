"""Recurrent networks, a whole sequence at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from ..ir.types import DataType
from ..targets import IOS17
from .common import REAL, concatenated, sliced
from .program import Lower, Made, ProgramBuilder, device_array

#: PyTorch's gates are input, forget, cell, output; MIL's are input, forget, output, cell.
_GATES: Final = (0, 1, 3, 2)


def constant_parameters(call: Call) -> str | None:
    """A sequence of 3 axes; weights and biases are constants, without projections."""
    per_layer = (4 if call["has_biases"] else 2) * (2 if call["bidirectional"] else 1)
    if call["input"].rank != 3 or len(call["params"]) != per_layer * call["num_layers"]:
        return "a sequence without a batch, or projections"
    computed = next((item for item in call["params"] if not item.is_constant), None)
    return None if computed is None else f"{computed.name} is computed: a constant is taken"


def not_training(call: Call) -> str | None:
    """Without dropout."""
    return "dropout between layers" if call["train"] and call["dropout"] else None


def _lstm(b: ProgramBuilder, call: Call) -> Made:
    result = b.result_type(call)
    # MIL before iOS 17 has it in float32 only.
    datatype = result if b.target >= IOS17 else DataType.FLOAT32
    x, hidden, cells = (b.cast(b.value(item), datatype) for item in (call["input"], *call["hx"]))
    if call["batch_first"]:
        x = _swapped(b, x)
    last: tuple[list[Var], list[Var]] = ([], [])
    directions = 2 if call["bidirectional"] else 1
    for layer in range(call["num_layers"]):
        rows = range(layer * directions, (layer + 1) * directions)
        initial = [concatenated(b, [_row(b, state, at) for at in rows], 1) for state in (hidden, cells)]
        parameters = _parameters(call, rows, datatype)
        x, *final = b.call(
            "lstm",
            x=x,
            initial_h=initial[0],
            initial_c=initial[1],
            direction="bidirectional" if directions == 2 else "forward",
            output_sequence=True,
            **parameters,
        )
        for found, state in zip(last, final, strict=True):
            found.extend(_halves(b, state, directions))
    if call["batch_first"]:
        x = _swapped(b, x)
    stacked = [b.call("stack", values=states, axis=numbers([0])[0]) for states in last]
    return tuple(b.cast(value, result) for value in (x, *stacked))


def _swapped(b: ProgramBuilder, x: Var) -> Var:
    return b.call("transpose", x=x, perm=numbers([1, 0, 2]))


def _row(b: ProgramBuilder, state: Var, at: int) -> Var:
    """The initial state (B, H) of one direction of one layer."""
    return b.call("squeeze", x=sliced(b, state, 0, at, at + 1), axes=numbers([0]))


def _halves(b: ProgramBuilder, state: Var, directions: int) -> list[Var]:
    """The final states of the directions."""
    size = state.shape[1] // directions
    return [sliced(b, state, 1, at * size, (at + 1) * size) for at in range(directions)]


def _parameters(call: Call, rows: Sequence[int], datatype: DataType) -> dict[str, Any]:
    """Weights and biases of a layer by MIL's names."""
    count = 4 if call["has_biases"] else 2
    found: dict[str, Any] = {}
    for row_index, ending in zip(rows, ("", "_back"), strict=False):
        items: Sequence[Operand] = call["params"][row_index * count : (row_index + 1) * count]
        tensors = [_reordered(item.constant) for item in items if item.constant is not None]
        found[f"weight_ih{ending}"] = device_array(tensors[0], datatype)
        found[f"weight_hh{ending}"] = device_array(tensors[1], datatype)
        if count == 4:
            found[f"bias{ending}"] = device_array(tensors[2] + tensors[3], datatype)
    return found


def _reordered(parameter: torch.Tensor) -> torch.Tensor:
    gates = parameter.detach().chunk(4)
    return torch.cat([gates[gate] for gate in _GATES])


ROWS: Final[tuple[Row[Lower], ...]] = (row("lstm.input", _lstm, REAL, constant_parameters, not_training, keep=True),)
