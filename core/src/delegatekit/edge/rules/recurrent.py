"""Recurrent layers, unrolled as PyTorch's decomposition does, without tracing every step of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from ..sizes import is_static
from .table import Family
from .writing import slice_dim

aten = torch.ops.aten

RECURRENT = Family("recurrent")

#: The state that a step passes to the next one: the hidden state, and the cell of an LSTM.
_State = tuple[Node, ...]


@dataclass(frozen=True)
class _Weights:
    """The parameters of one layer in one direction."""

    of_input: Node
    of_hidden: Node
    input_bias: Node | None
    hidden_bias: Node | None


#: Computes the next state from the state and from the input's contribution in this step.
_Cell = Callable[[EdgeBuilder, _State, Node, _Weights], _State]


# -- cells -----------------------------------------------------------------------------------------------------------


def _linear(b: EdgeBuilder, x: Node, weight: Node, bias: Node | None) -> Node:
    """Rows times a matrix, plus a bias."""
    turned = b.call(aten.t.default, weight)
    return b.call(aten.mm.default, x, turned) if bias is None else b.call(aten.addmm.default, bias, x, turned)  # type: ignore[no-any-return]


def _chunks(b: EdgeBuilder, x: Node, count: int) -> list[Node]:
    size = b.shape(x)[1] // count
    return [slice_dim(b, x, 1, number * size, (number + 1) * size) for number in range(count)]


def _lstm_cell(b: EdgeBuilder, state: _State, step: Node, weights: _Weights) -> _State:
    hidden, cell = state
    gates = b.call(aten.add.Tensor, _linear(b, hidden, weights.of_hidden, weights.hidden_bias), step)
    forms = (aten.sigmoid.default, aten.sigmoid.default, aten.tanh.default, aten.sigmoid.default)
    into, keep, new, out = (b.call(form, gate) for form, gate in zip(forms, _chunks(b, gates, 4), strict=True))
    kept, added = b.call(aten.mul.Tensor, keep, cell), b.call(aten.mul.Tensor, into, new)
    cell = b.call(aten.add.Tensor, kept, added)
    return b.call(aten.mul.Tensor, out, b.call(aten.tanh.default, cell)), cell


def _gru_cell(b: EdgeBuilder, state: _State, step: Node, weights: _Weights) -> _State:
    (hidden,) = state
    given = _chunks(b, step, 3)
    own = _chunks(b, _linear(b, hidden, weights.of_hidden, weights.hidden_bias), 3)
    reset, update = (
        b.call(aten.sigmoid.default, b.call(aten.add.Tensor, own[number], given[number])) for number in range(2)
    )
    new = b.call(aten.tanh.default, b.call(aten.add.Tensor, given[2], b.call(aten.mul.Tensor, own[2], reset)))
    moved = b.call(aten.mul.Tensor, b.call(aten.sub.Tensor, hidden, new), update)
    return (b.call(aten.add.Tensor, moved, new),)


def _plain_cell(function: Any) -> _Cell:
    def cell(b: EdgeBuilder, state: _State, step: Node, weights: _Weights) -> _State:
        (hidden,) = state
        total = b.call(aten.add.Tensor, _linear(b, hidden, weights.of_hidden, weights.hidden_bias), step)
        return (b.call(function, total),)

    return cell


# -- layers ----------------------------------------------------------------------------------------------------------


def _unbound(b: EdgeBuilder, x: Node) -> list[Node]:
    """The parts along the first dimension."""
    parts = [slice_dim(b, x, 0, number, number + 1) for number in range(b.shape(x)[0])]
    return [b.call(aten.squeeze.dims, part, [0]) for part in parts]


def _projected(b: EdgeBuilder, x: Node, weights: _Weights, *, turned: bool) -> Node:
    """The input's contribution in each step, (steps, batch, features); `turned` if the batch comes first in memory."""
    steps, batch, features = b.shape(x)
    if turned and (1 not in (steps, batch) or (weights.input_bias is None and (steps, batch) != (1, 1))):
        weight = b.call(aten.t.default, weights.of_input)
        product: Node = b.call(aten.bmm.default, x, b.call(aten.expand.default, weight, [steps, *b.shape(weight)]))
        if weights.input_bias is not None:
            product = b.call(aten.add.Tensor, product, weights.input_bias)
        return product
    rows = b.call(aten.view.default, x, [steps * batch, features])
    product = _linear(b, rows, weights.of_input, weights.input_bias)
    return b.call(aten.view.default, product, [steps, batch, b.shape(product)[1]])  # type: ignore[no-any-return]


def _run(
    b: EdgeBuilder, cell: _Cell, x: Node, state: _State, weights: _Weights, *, turned: bool, backward: bool
) -> tuple[Node, _State]:
    """One layer in one direction: its outputs for all steps, and its last state."""
    steps = _unbound(b, _projected(b, x, weights, turned=turned))
    outputs = []
    for step in reversed(steps) if backward else steps:
        state = cell(b, state, step, weights)
        outputs.append(state[0])
    return b.call(aten.stack.default, outputs[::-1] if backward else outputs), state


def _layers(b: EdgeBuilder, call: Draft, cell: _Cell, initial: Sequence[Node]) -> Value:
    """All layers; `initial` are the initial states of all, stacked, one tensor for each part of a state."""
    x, parameters, biases = call["input", "params", "has_biases"]
    count, bidirectional, batch_first = call["num_layers", "bidirectional", "batch_first"]
    directions = 2 if bidirectional else 1
    each = 4 if biases else 2
    shapes = [b.shape(item) for item in (x, *initial)]
    if len(shapes[0]) != 3 or not all(map(is_static, shapes)) or (call["train"] and call["dropout"] > 0):
        return NotImplemented
    if len(parameters) != count * directions * each or 0 in shapes[0]:
        return NotImplemented  # an LSTM with projections
    x = b.call(aten.transpose.int, x, 0, 1) if batch_first else x
    states = list(zip(*(_unbound(b, item) for item in initial), strict=True))
    last: list[_State] = []
    for layer in range(count):
        found = []
        for direction in range(directions):
            number = layer * directions + direction
            own = parameters[number * each : (number + 1) * each]
            weights = _Weights(own[0], own[1], *(own[2:] if biases else (None, None)))
            turned = batch_first and layer == 0
            output, state = _run(b, cell, x, states[number], weights, turned=turned, backward=direction == 1)
            found.append(output)
            last.append(state)
        x = b.call(aten.cat.default, found, 2) if bidirectional else found[0]
    final = [b.call(aten.stack.default, list(part)) for part in reversed(list(zip(*last, strict=True)))]
    x = b.call(aten.transpose.int, x, 0, 1) if batch_first else x
    return (x, *reversed(final))


@RECURRENT.rule(aten.lstm.input)
def _lstm(b: EdgeBuilder, call: Draft) -> Value:
    return _layers(b, call, _lstm_cell, call["hx"])


def _simple(cell: _Cell) -> Rule:
    return lambda b, call: _layers(b, call, cell, [call["hx"]])


RECURRENT.rule(aten.gru.input)(_simple(_gru_cell))
RECURRENT.rule(aten.rnn_tanh.input)(_simple(_plain_cell(aten.tanh.default)))
RECURRENT.rule(aten.rnn_relu.input)(_simple(_plain_cell(aten.relu.default)))
