"""The rows of the support table: every operator is lowered to one step with its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node

from delegatekit_api import Call, LoweringError
from delegatekit_toolkit.support import Constraint, Row, row

from .ir.functions import name_of
from .ir.graph import Argument, Named, Ref, Step
from .ir.names import OPERATORS, VIEWS, WHOLE

#: Node -> number of its value.
Numbers: TypeAlias = Mapping[Node, int]

_NAMED: Final[tuple[tuple[type, str], ...]] = (
    (torch.dtype, "dtype"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
    (torch.device, "device"),
)


def write_step(numbers: Numbers, call: Call) -> Step:
    """The step of an operator or of a function on numbers. Raises LoweringError for what a blob cannot represent."""
    node = call.node
    name = call.operator if isinstance(node.target, torch._ops.OpOverload) else name_of(node.target)
    if name is None:
        raise LoweringError("calls a function that a blob cannot name", where=call.description)
    # As in the program: positional ones stay positional, and defaults are left to PyTorch.
    args = tuple(_argument(item, numbers, call) for item in node.args)
    return Step(name, args, {key: _argument(item, numbers, call) for key, item in node.kwargs.items()})


def _argument(item: Any, numbers: Numbers, call: Call) -> Argument:
    if isinstance(item, Node):
        return Ref(numbers[item])
    if isinstance(item, list | tuple):
        return tuple(_argument(element, numbers, call) for element in item)
    if item is None or isinstance(item, bool | int | float | str):
        return item
    for kind, name in _NAMED:
        if isinstance(item, kind):
            return Named(name, str(item).removeprefix("torch."))
    raise LoweringError(f"has an argument that a blob cannot hold: {item!r:.60}", where=call.description)


def not_training(call: Call) -> str | None:
    """In evaluation mode: in training it updates its statistics."""
    return "in training mode it updates its statistics: call model.eval()" if call["training"] else None


def no_running_statistics(call: Call) -> str | None:
    """Either from the statistics of its input, or from given ones; not both, which would update them."""
    if call["use_input_stats"] and call["running_mean"] is not None:
        return "it updates its running statistics: call model.eval()"
    return None


def no_dropout(call: Call) -> str | None:
    """Without dropout."""
    return "dropout is random: call model.eval()" if call["dropout_p"] else None


def no_recurrent_dropout(call: Call) -> str | None:
    """Without dropout between layers, or in evaluation mode."""
    return "dropout is random: call model.eval()" if call["train"] and call["dropout"] else None


def no_masks(call: Call) -> str | None:
    """Indices are numbers: how many elements a mask selects depends on its values."""
    for index in call["indices"]:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            return f"{index.name} is a mask: the size of the result depends on its values"
    return None


_CONSTRAINTS: Final[dict[str, Constraint]] = {
    "aten.index.Tensor": no_masks,
    "aten._unsafe_index.Tensor": no_masks,
    "aten.batch_norm.default": not_training,
    "aten.native_batch_norm.default": not_training,
    "aten.instance_norm.default": no_running_statistics,
    "aten.scaled_dot_product_attention.default": no_dropout,
    "aten.lstm.input": no_recurrent_dropout,
    "aten.gru.input": no_recurrent_dropout,
    "aten.rnn_tanh.input": no_recurrent_dropout,
    "aten.rnn_relu.input": no_recurrent_dropout,
}


def _row(name: str) -> Row[Any]:
    constraints = (_CONSTRAINTS[name],) if name in _CONSTRAINTS else ()
    return row(name, write_step, *constraints, keep=name in WHOLE, passenger=name in VIEWS)


#: All operators that the backend supports. To add one: its name in `ir.names`, and here its constraints.
ROWS: Final = tuple(map(_row, sorted(OPERATORS)))
