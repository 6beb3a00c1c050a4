"""Axes that a program joins (`ir.joined`), followed through its calls: which calls must be lowered together.

Calls are identified by operator name: views, permutations and products with a matrix pass the groups on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.sizes import dynamic_count
from delegatekit_toolkit.symbols import shape_of

from ..ir.joined import Axes, is_reshaped, parts_of, plain, reshape_obstacle, viewed, with_last_joined

_VIEWS: Final = ("aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dims")
_PERMUTE: Final = "aten.permute_copy.default"
#: Operators that work row by row: the argument with the rows, and those that they are multiplied by and added to.
_ROW_WISE: Final = {
    "aten.linear.default": ("input", {"weight", "bias"}),
    "aten.addmm.default": ("mat1", {"mat2", "self"}),
    "aten.mm.default": ("self", {"mat2"}),
    "aten.matmul.default": ("self", {"other"}),
}


def source_of(call: Call) -> Operand | None:
    """The operand that a call views, permutes or multiplies row by row; None for calls that do not support groups."""
    name = call.operator
    if name not in _ROW_WISE:
        return call["self"] if name in _VIEWS or name == _PERMUTE else None
    rows, others = _ROW_WISE[name]
    # Inputs and constants: nothing that depends on the rows.
    known = all(call[other] is None or call[other].node.op == "placeholder" for other in others)
    return call[rows] if known and _is_row_wise(call) else None


def _is_row_wise(call: Call) -> bool:
    """True if a product multiplies each row by the same matrix, and adds the same to each."""
    if call.operator == "aten.matmul.default":
        return bool(call["other"].rank == 2 and call["self"].rank > 1)
    return call.operator != "aten.addmm.default" or shape_of(call["self"]) == shape_of(call.result)[1:]


def axes_of_operand(operand: Operand) -> Axes:
    """The groups of a tensor's axes when all calls that it is computed by are lowered together."""
    producer = operand.producer
    return plain(shape_of(operand)) if producer is None else axes_of_call(producer)


def axes_of_call(call: Call) -> Axes:
    """The groups of the axes of a call's result when all calls that it is computed by are lowered together."""
    shape, source, name = shape_of(call.result), source_of(call), call.operator
    if source is None or dynamic_count(shape) < 1:
        return plain(shape)
    axes = axes_of_operand(source)
    found: Axes | None = None
    if name == _PERMUTE:
        found = tuple(axes[axis_of(dim, len(axes))] for dim in call["dims"])
    elif name in _ROW_WISE:
        rows = with_last_joined(axes) if len(axes) > 1 and dynamic_count(parts_of(axes)) > 1 else None
        found = None if rows is None else (*rows[:-1], shape[-1:])
    else:
        found = viewed(axes, shape)
    return plain(shape) if found is None else found


def view_obstacle(call: Call) -> str | None:
    """The reason why neither a reshape nor a group can express a view; None if one can, with `company(call)`."""
    source, target = call["self"], shape_of(call.result)
    found = viewed(axes_of_operand(source), target)
    if found is None:
        return reshape_obstacle(shape_of(source), target)
    if is_reshaped(found) or _is_taken_in_groups(call):
        return None
    return reshape_obstacle(shape_of(source), target) or "sizes that change are joined for an operator"


def _is_taken_in_groups(call: Call) -> bool:
    """True if all readers of a call's result accept it in groups."""
    users = call.users
    return len(users) == len(call.node.users) and all(map(_takes_groups, users))


def _takes_groups(call: Call) -> bool:
    """True if a call's result needs no tensor that cannot be computed, given its source in groups."""
    if source_of(call) is None:
        return False
    return is_reshaped(axes_of_call(call)) or (bool(call.node.users) and _is_taken_in_groups(call))


def needs_company(call: Call) -> bool:
    """True if a call cannot be expressed without its `company`."""
    if source_of(call) is None:
        return False
    return not is_reshaped(axes_of_call(call)) or (call.operator in _VIEWS and _needs_groups(call))


def company(call: Call) -> frozenset[Call]:
    """The calls that must be lowered together with a call: views that split groups, and makers of the groups."""
    members: set[Call] = set()
    for view in _views_after(call):
        members |= _makers(view)
    return frozenset(members - {call})


def _views_after(call: Call) -> Iterator[Call]:
    """The views that need the groups of a call, or of its source: the call itself, or later ones."""
    if source_of(call) is None:
        return
    if call.operator in _VIEWS and _needs_groups(call):
        yield call
    if axes_of_call(call) != plain(shape_of(call.result)):
        for user in call.users:
            yield from _views_after(user)


def _needs_groups(view: Call) -> bool:
    """True if a view can only be expressed with the groups of its source."""
    source, target = view["self"], shape_of(view.result)
    axes, shape = axes_of_operand(source), shape_of(source)
    return axes != plain(shape) and viewed(axes, target) is not None and reshape_obstacle(shape, target) is not None


def _makers(view: Call) -> set[Call]:
    """A view and all calls that its groups come from."""
    members = {view}
    source = source_of(view)
    while source is not None and source.producer is not None and axes_of_operand(source) != plain(shape_of(source)):
        members.add(source.producer)
        source = source_of(source.producer)
    return members
