"""Recurrent networks: whole sequences in one operation."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

from ..kernel import Kernel, Tensor, kernel


def _gates(values: Tensor, count: int) -> tuple[Tensor, ...]:
    """The parts of a last axis that has this many numbers for each hidden one."""
    return torch.unflatten(values, -1, (count, -1)).unbind(-2)


def _direction(
    x: Tensor, h: Tensor, c: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """One direction over x (S, B, I), gates in MIL's order: all hidden states, the last one, the last cell."""
    inputs = x @ weight_ih.mT
    if bias is not None:
        inputs = inputs + bias
    states = []
    for step in inputs.unbind(0):
        first, forget, output, cell = _gates(step + h @ weight_hh.mT, 4)
        c = torch.sigmoid(forget) * c + torch.sigmoid(first) * torch.tanh(cell)
        h = torch.sigmoid(output) * torch.tanh(c)
        states.append(h)
    return torch.stack(states), h, c


def _lstm(
    x: Tensor,
    initial_h: Tensor,
    initial_c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    direction: str,
    output_sequence: bool,
    recurrent_activation: str,
    cell_activation: str,
    activation: str,
    bias: Tensor | None = None,
    weight_ih_back: Tensor | None = None,
    weight_hh_back: Tensor | None = None,
    bias_back: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if (recurrent_activation, cell_activation, activation) != ("sigmoid", "tanh", "tanh"):
        raise ValueError("other activations than sigmoid and tanh")
    if direction == "bidirectional":
        if weight_ih_back is None or weight_hh_back is None:
            raise ValueError("no weights for the backward direction")
        half = weight_hh.shape[-1]
        states, h, c = _direction(x, initial_h[:, :half], initial_c[:, :half], weight_ih, weight_hh, bias)
        back, last_h, last_c = _direction(
            x.flip(0), initial_h[:, half:], initial_c[:, half:], weight_ih_back, weight_hh_back, bias_back
        )
        states = torch.cat([states, back.flip(0)], -1)
        h, c = torch.cat([h, last_h], -1), torch.cat([c, last_c], -1)
    else:
        _check_forward(direction)
        states, h, c = _direction(x, initial_h, initial_c, weight_ih, weight_hh, bias)
    return states if output_sequence else h[None], h, c


_ACTIVATIONS: Final = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


def _check_forward(direction: str) -> None:
    """Raise ValueError for sequences processed in another direction: no compiler writes these."""
    if direction != "forward":
        raise ValueError(f"direction = {direction!r:.20}")


def _rnn(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    direction: str,
    output_sequence: bool,
    activation: str,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    _check_forward(direction)
    function, h, states = _ACTIVATIONS[activation], initial_h, []
    for step in functional.linear(x, weight_ih, bias).unbind(0):
        h = function(step + h @ weight_hh.mT)
        states.append(h)
    return (torch.stack(states) if output_sequence else h[None]), h


def _gru(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    direction: str,
    output_sequence: bool,
    recurrent_activation: str,
    activation: str,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gates in MIL's order: reset, new, update. The reset is of the product alone, not of a bias."""
    _check_forward(direction)
    inner, outer = _ACTIVATIONS[recurrent_activation], _ACTIVATIONS[activation]
    h, states = initial_h, []
    for step in functional.linear(x, weight_ih, bias).unbind(0):
        inputs, kept = _gates(step, 3), _gates(h @ weight_hh.mT, 3)
        reset, update = inner(inputs[0] + kept[0]), inner(inputs[2] + kept[2])
        new = outer(inputs[1] + reset * kept[1])
        h = (1 - update) * new + update * h
        states.append(h)
    return (torch.stack(states) if output_sequence else h[None]), h


KERNELS: Final[dict[str, Kernel]] = {"lstm": kernel(_lstm), "rnn": kernel(_rnn), "gru": kernel(_gru)}
