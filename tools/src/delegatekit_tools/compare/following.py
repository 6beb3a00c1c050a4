"""The referee along a program's own selections: which of them are right, and what follows from them.

An index that a program chose by numbers within their bounds is as right as the referee's. What reads it is compared
with what PyTorch computes of the same index; so is the effect of a rounding of the inputs, which is no other choice.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit_api.nodes import argument, operator_name
from delegatekit_toolkit.accuracy import Chosen, Operand, Selection, selection_of, slack, widened

from .attainable import accuracy_of, before, held, precision_of
from .referee import Values, computed

#: The choices that a program made: selecting operator -> its indices, mask or whole numbers.
Choices = Mapping[Node, torch.Tensor]


@dataclass(frozen=True)
class Followed:
    """Values of nodes along the choices that were given, and the judgments of these choices."""

    references: Mapping[Node, Any]
    #: After a rounding of what the nodes read, along the same choices.
    moved: Mapping[Node, Any]
    #: Selecting operator -> the judgment of its choice.
    chosen: Mapping[Node, Chosen]
    #: The choices that are right, and were followed.
    choices: Choices
    #: Selecting operator -> the node that has its choice.
    nodes: Mapping[Node, Node]

    def of(self, choice: Node) -> Chosen | None:
        """The judgment of the choice that a node has; None if it has none that was given."""
        return next((found for node, found in self.chosen.items() if self.nodes[node] is choice), None)

    @property
    def ties(self) -> tuple[str, ...]:
        """The choices that are right and not PyTorch's, in words."""
        right = [(node, found) for node, found in self.chosen.items() if found.differing and not found.difference]
        return tuple(
            f"{operator_name(node)} ({node.name}): {found.differing} of {found.total} choices" for node, found in right
        )


def choices_in(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Selecting operator -> the node that has its choice, if anything reads that."""
    found: dict[Node, Node] = {}
    for node in nodes:
        rule = selection_of(node)
        if rule is not None and (choice := _choice_of(node, rule)) is not None:
            found[node] = choice
    return found


def follow(
    edge: EdgeMethod, nodes: Sequence[Node], known: Values, off: Values, given: Choices, precision: str
) -> Followed:
    """The values of nodes, in the order of the graph, along the choices that are right.

    `known` are the values of what they read, `off` the same after a rounding; `given` are the choices of a program that
    computes in `precision`. A choice that is wrong is judged, and not followed.
    """
    references: dict[Node, Any] = {}
    moved: dict[Node, Any] = {}
    chosen: dict[Node, Chosen] = {}
    followed: dict[Node, torch.Tensor] = {}
    with torch.no_grad():
        for node in nodes:
            references[node] = computed(edge, node, references, known)
            moved[node] = computed(edge, node, moved, off)
            rule = selection_of(node)
            if rule is None:
                continue
            own = rule.choice(references[node])
            if node in given and given[node].shape == own.shape:
                choice = rule.read(widened(given[node]))
                operands = {
                    name: _operand(edge, nodes, argument(node, name), references, moved, known, off, precision)
                    for name in rule.reads
                    if not _is_missing(node, name)
                }
                chosen[node] = rule.judged(operands, choice, own)
                if not chosen[node].difference:
                    followed[node] = own = choice
            for values, others in ((references, known), (moved, off)):
                values[node] = _along(rule, node, own, values, others)
    return Followed(references, moved, chosen, followed, choices_in(nodes))


def along(choices: Choices, node: Node, values: Values, known: Values) -> Any:
    """The value of a node, which was computed, after its choice; the value itself if there is none."""
    rule = selection_of(node) if node in choices else None
    return values[node] if rule is None else _along(rule, node, choices[node], values, known)


def _along(rule: Selection, node: Node, choice: torch.Tensor, values: Values, known: Values) -> Any:
    read = {name: _value(argument(node, name), values, known) for name in rule.reads if not _is_missing(node, name)}
    return rule.along({name: torch.as_tensor(value) for name, value in read.items()}, choice, values[node])


def _operand(
    edge: EdgeMethod,
    nodes: Sequence[Node],
    item: Any,
    references: Values,
    moved: Values,
    known: Values,
    off: Values,
    precision: str,
) -> Operand:
    """What a program may hold of something that a selecting operator reads."""
    value = torch.as_tensor(_value(item, references, known))
    if not isinstance(item, Node):
        number = held(value.float(), precision).double() if value.is_floating_point() else value
        return _between(value.double(), number.double(), torch.zeros_like(value, dtype=torch.float64))
    dtype = item.meta["val"].dtype
    inside = before(item, nodes)
    accuracy = accuracy_of(edge, inside, {**known, **references})
    exact = accuracy.exact and not accuracy.steps
    rounding = (
        torch.zeros_like(value, dtype=torch.float64)
        if exact
        else slack(value, dtype, precision_of(inside, precision), accuracy, torch.as_tensor(_value(item, moved, off)))
    )
    return _between(value.double(), held(value.to(dtype), precision).double(), rounding)


def _between(value: torch.Tensor, represented: torch.Tensor, rounding: torch.Tensor) -> Operand:
    """A number, the one that represents it in a precision, and all that are not further off than a bound."""
    represented = torch.where(represented.isnan(), value, represented)
    return Operand(value, torch.minimum(value - rounding, represented), torch.maximum(value + rounding, represented))


def _choice_of(node: Node, rule: Selection) -> Node | None:
    if rule.place is None:
        return node
    picks = (user for user in node.users if user.target is operator.getitem and user.args[1] == rule.place)
    return next(picks, None)


def _value(item: Any, values: Values, known: Values) -> Any:
    if not isinstance(item, Node):
        return item
    return values[item] if item in values else known[item]


def _is_missing(node: Node, name: str) -> bool:
    try:
        return argument(node, name) is None
    except KeyError:
        return True
