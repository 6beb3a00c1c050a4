"""Recurrent networks, a whole sequence at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from ..ir.types import DataType
from ..targets import IOS17
from .common import REAL, add, concatenated, mul, sliced, sub, unary
from .program import Lower, Made, ProgramBuilder, device_array

#: PyTorch's gates are input, forget, cell, output; MIL's are input, forget, output, cell.
_LSTM_GATES: Final = (0, 1, 3, 2)
#: PyTorch's gates are reset, update, new; MIL's are reset, new, update.
_GRU_GATES: Final = (0, 2, 1)
#: Writes one layer: x (S, B, I), the rows of its parameters, initial states (B, H) by state and direction -> all hidden
#: states, and the final states by state and direction.
_Layer: TypeAlias = Callable[
    [ProgramBuilder, Call, Var, Sequence[int], list[list[Var]], DataType], tuple[Var, list[list[Var]]]
]


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


# -- layer by layer ----------------------------------------------------------------------------------------------------


def _network(layer: _Layer) -> Lower:
    """All layers of a network, which has one state or several."""

    def lower(b: ProgramBuilder, call: Call) -> Made:
        result = b.result_type(call)
        # MIL before iOS 17 has it in float32 only.
        datatype = result if b.target >= IOS17 else DataType.FLOAT32
        given = [call["hx"]] if isinstance(call["hx"], Operand) else call["hx"]
        x, *states = (b.cast(b.value(item), datatype) for item in (call["input"], *given))
        if call["batch_first"]:
            x = _swapped(b, x)
        last: list[list[Var]] = [[] for _ in states]
        directions = 2 if call["bidirectional"] else 1
        for number in range(call["num_layers"]):
            rows = range(number * directions, (number + 1) * directions)
            initial = [[_row(b, state, at) for at in rows] for state in states]
            x, final = layer(b, call, x, rows, initial, datatype)
            for found, more in zip(last, final, strict=True):
                found.extend(more)
        if call["batch_first"]:
            x = _swapped(b, x)
        stacked = [b.call("stack", values=found, axis=numbers([0])[0]) for found in last]
        return tuple(b.cast(value, result) for value in (x, *stacked))

    return lower


def _swapped(b: ProgramBuilder, x: Var) -> Var:
    return b.call("transpose", x=x, perm=numbers([1, 0, 2]))


def _reversed(b: ProgramBuilder, x: Var) -> Var:
    return b.call("reverse", x=x, axes=numbers([0]))


def _row(b: ProgramBuilder, state: Var, at: int) -> Var:
    """The initial state (B, H) of one direction of one layer."""
    return b.call("squeeze", x=sliced(b, state, 0, at, at + 1), axes=numbers([0]))


def _each_direction(direction: Callable[[ProgramBuilder, Call, Var, int, Var, DataType], tuple[Var, Var]]) -> _Layer:
    """A layer with one state: what goes forward, and what goes back over the sequence in reverse order."""

    def layer(
        b: ProgramBuilder, call: Call, x: Var, rows: Sequence[int], initial: list[list[Var]], datatype: DataType
    ) -> tuple[Var, list[list[Var]]]:
        sequences, finals = [], []
        for number, at in enumerate(rows):
            source = _reversed(b, x) if number else x
            sequence, final = direction(b, call, source, at, initial[0][number], datatype)
            sequences.append(_reversed(b, sequence) if number else sequence)
            finals.append(final)
        return concatenated(b, sequences, 2), [finals]

    return layer


def _parameters(call: Call, at: int) -> list[torch.Tensor]:
    """Weights and biases of one direction of one layer."""
    count = 4 if call["has_biases"] else 2
    items: Sequence[Operand] = call["params"][at * count : (at + 1) * count]
    return [item.constant.detach() for item in items if item.constant is not None]


def _by_gate(parameter: torch.Tensor, gates: int) -> torch.Tensor:
    return torch.unflatten(parameter, 0, (gates, -1))


def _reordered(parameter: torch.Tensor, gates: Sequence[int]) -> torch.Tensor:
    return _by_gate(parameter, len(gates))[list(gates)].flatten(0, 1)


# -- kinds of networks -------------------------------------------------------------------------------------------------


def _lstm(
    b: ProgramBuilder, call: Call, x: Var, rows: Sequence[int], initial: list[list[Var]], datatype: DataType
) -> tuple[Var, list[list[Var]]]:
    found: dict[str, Any] = {}
    for at, ending in zip(rows, ("", "_back"), strict=False):
        weight_ih, weight_hh, *biases = (_reordered(item, _LSTM_GATES) for item in _parameters(call, at))
        found[f"weight_ih{ending}"] = device_array(weight_ih, datatype)
        found[f"weight_hh{ending}"] = device_array(weight_hh, datatype)
        if biases:
            found[f"bias{ending}"] = device_array(biases[0] + biases[1], datatype)
    hidden, cells = (concatenated(b, states, 1) for states in initial)
    x, *final = b.call(
        "lstm",
        x=x,
        initial_h=hidden,
        initial_c=cells,
        direction="bidirectional" if len(rows) == 2 else "forward",
        output_sequence=True,
        **found,
    )
    return x, [_halves(b, state, len(rows)) for state in final]


def _halves(b: ProgramBuilder, state: Var, directions: int) -> list[Var]:
    """The final states of the directions."""
    size = state.shape[1] // directions
    return [sliced(b, state, 1, at * size, (at + 1) * size) for at in range(directions)]


def _rnn(b: ProgramBuilder, call: Call, x: Var, at: int, initial: Var, datatype: DataType) -> tuple[Var, Var]:
    """One direction of a plain network, whose function is in the operator's name."""
    weight_ih, weight_hh, *biases = _parameters(call, at)
    more = {"bias": device_array(biases[0] + biases[1], datatype)} if biases else {}
    sequence, final = b.call(
        "rnn",
        x=x,
        initial_h=initial,
        weight_ih=device_array(weight_ih, datatype),
        weight_hh=device_array(weight_hh, datatype),
        output_sequence=True,
        activation="relu" if "rnn_relu" in call.operator else "tanh",
        **more,
    )
    return sequence, final


def _gru(b: ProgramBuilder, call: Call, x: Var, at: int, initial: Var, datatype: DataType) -> tuple[Var, Var]:
    """One direction. MIL's operation adds the hidden bias of the new state after the reset, PyTorch before: where there
    is one, each step is written."""
    weight_ih, weight_hh, *biases = _parameters(call, at)
    if biases and bool(_by_gate(biases[1], 3)[2].any()):
        return _gru_steps(b, x, initial, (weight_ih, weight_hh, *biases), datatype)
    more = {"bias": device_array(_reordered(biases[0] + biases[1], _GRU_GATES), datatype)} if biases else {}
    sequence, final = b.call(
        "gru",
        x=x,
        initial_h=initial,
        weight_ih=device_array(_reordered(weight_ih, _GRU_GATES), datatype),
        weight_hh=device_array(_reordered(weight_hh, _GRU_GATES), datatype),
        output_sequence=True,
        **more,
    )
    return sequence, final


def _gru_steps(
    b: ProgramBuilder, x: Var, state: Var, parameters: Sequence[torch.Tensor], datatype: DataType
) -> tuple[Var, Var]:
    """Step by step; what the sequence itself gives to the gates is one product."""
    weight_ih, weight_hh, bias_ih, bias_hh = (device_array(item, datatype) for item in parameters)
    given = b.call("linear", x=x, weight=weight_ih, bias=bias_ih)
    size, states = state.shape[1], []
    for step in range(x.shape[0]):
        now = b.call("squeeze", x=sliced(b, given, 0, step, step + 1), axes=numbers([0]))
        kept = b.call("linear", x=state, weight=weight_hh, bias=bias_hh)
        inputs, hidden = (
            [sliced(b, item, 1, gate * size, (gate + 1) * size) for gate in range(3)] for item in (now, kept)
        )
        reset, update = (unary(b, "sigmoid", add(b, inputs[gate], hidden[gate])) for gate in (0, 1))
        new = unary(b, "tanh", add(b, inputs[2], mul(b, reset, hidden[2])))
        state = add(b, new, mul(b, update, sub(b, state, new)))
        states.append(state)
    return b.call("stack", values=states, axis=numbers([0])[0]), state


_CONDITIONS: Final = (REAL, constant_parameters, not_training)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("lstm.input", _network(_lstm), *_CONDITIONS, keep=True),
    row("rnn_tanh.input rnn_relu.input", _network(_each_direction(_rnn)), *_CONDITIONS, keep=True, static_only=True),
    row("gru.input", _network(_each_direction(_gru)), *_CONDITIONS, keep=True, static_only=True),
)
