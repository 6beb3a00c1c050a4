"""Recurrent layers and cells, and gated linear units."""

from __future__ import annotations

from typing import Any

from ..recipe import Recipe, Ref, Values
from .registry import operator
from .sketch import FLOATS, Sketch


def _values(sketch: Sketch, results: int) -> tuple[Values, Values]:
    """The kinds of inputs and weights. Small weights keep the gates where they are neither open nor shut; with larger
    ones, the effect of a gate on the result is larger than roundings.

    Few results could all be next to 0, with rounding errors of numbers that are not; so there nothing cancels out.
    """
    if results < 8 or sketch.rarely(3):
        return ("uniform", 0.25, 1.0), ("uniform", 0.125, 0.5)
    return ("uniform", -1.0, 1.0), sketch.choice((("uniform", -0.5, 0.5), ("uniform", -1.5, 1.5)))


def _biases(sketch: Sketch, rows: int, values: Values) -> list[tuple[tuple[int, ...], Values]]:
    """Both biases of a layer; often one is zero, or both are, as trainings begin."""
    zero: Values = ("among", (0.0,))
    first, second = sketch.choice(((values, values), (values, values), (values, zero), (zero, values), (zero, zero)))
    return [((rows,), first), ((rows,), second)]


#: Gates of each kind of layer.
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@operator("aten.glu.default", dtypes=FLOATS)
def _glu(sketch: Sketch, name: str) -> Recipe:
    shape = list(sketch.shape(1, 5))
    dim = sketch.dim(len(shape))
    shape[dim] *= 2
    x = sketch.tensor(shape, special=True)
    sketch.call(name, x, *([] if dim == -1 and sketch.flag() else [dim]))
    return sketch.recipe(depth=2)


@operator("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input", dtypes=("float32",))
def _layers(sketch: Sketch, name: str) -> Recipe:
    kind = name.split(".")[1]
    steps, count, inputs = (sketch.integer(1, 3) for _ in range(3))
    hidden = sketch.integer(1, 5)
    numbers, small = _values(sketch, count * hidden)
    layers, directions = sketch.integer(1, 2), 1 + sketch.rarely(3)
    biases, batch_first = sketch.flag(), sketch.flag()
    shape = (count, steps, inputs) if batch_first else (steps, count, inputs)
    x = sketch.tensor(shape, values=numbers)
    state_shape = (layers * directions, count, hidden)
    states = [sketch.tensor(state_shape, values=numbers) for _ in range(2 if kind == "lstm" else 1)]
    weights: list[Ref] = []
    rows = _GATES[kind] * hidden
    for layer in range(layers):
        for _ in range(directions):
            width = inputs if layer == 0 else hidden * directions
            made = [((rows, width), small), ((rows, hidden), small), *(_biases(sketch, rows, small) if biases else [])]
            weights += [sketch.tensor(shape, values=values, constant=True) for shape, values in made]
    given: Any = states if kind == "lstm" else states[0]
    result = sketch.call(name, x, given, weights, biases, layers, 0.0, False, directions == 2, batch_first)
    outputs = [Ref(result.name, index) for index in range(3 if kind == "lstm" else 2)]
    # Gates bound the state from step to step: errors grow with steps and layers, and not with each of both.
    return sketch.recipe(*outputs, reduction_length=inputs + hidden, depth=2 * (steps + layers))


@operator(
    "aten.lstm_cell.default",
    "aten.gru_cell.default",
    "aten.rnn_tanh_cell.default",
    "aten.rnn_relu_cell.default",
    dtypes=("float32",),
)
def _cell(sketch: Sketch, name: str) -> Recipe:
    kind = name.split(".")[1].removesuffix("_cell")
    count, inputs, hidden = (sketch.integer(1, 4) for _ in range(3))
    numbers, small = _values(sketch, count * hidden)
    x = sketch.tensor((count, inputs), values=numbers)
    states = [sketch.tensor((count, hidden), values=numbers) for _ in range(2 if kind == "lstm" else 1)]
    rows = _GATES[kind] * hidden
    made = [((rows, inputs), small), ((rows, hidden), small), *(_biases(sketch, rows, small) if sketch.flag() else [])]
    weights = [sketch.weight(shape, values=values) for shape, values in made]
    result = sketch.call(name, x, states if kind == "lstm" else states[0], *weights)
    outputs = [Ref(result.name, index) for index in range(2)] if kind == "lstm" else [result]
    return sketch.recipe(*outputs, reduction_length=inputs + hidden, depth=4)
