"""The referee along a program's own selections: which of them are right, and what follows from them.

An index that a program chose by numbers within their bounds is as right as the referee's. What reads it is compared
with what PyTorch computes of the same index; so is the effect of a rounding of the inputs, which is no other choice.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit_api.nodes import argument, operator_name
from delegatekit_toolkit.accuracy import Accuracy, Chosen, Operand, Selection, longest_way, selection_of, slack, widened

from .attainable import accuracy_of, before, held, precision_of
from .referee import Values, calls_of, computed, given_to, kind_of

#: The choices that a program made: selecting operator -> its indices, mask or whole numbers.
Choices: TypeAlias = Mapping[Node, torch.Tensor]


@dataclass(frozen=True)
class Round:
    """One run of a graph of control flow: its number among the call's graphs, and the choices that it made."""

    region: int
    choices: Choices


#: The runs of the graphs of a call of control flow, in order.
Trace: TypeAlias = tuple[Round, ...]


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
        return next((found for node, found in self.chosen.items() if self.nodes.get(node) is choice), None)

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
    edge: EdgeMethod,
    nodes: Sequence[Node],
    known: Values,
    off: Values,
    given: Choices,
    precision: str,
    inside: Mapping[Node, Trace] | None = None,
    before_it: int = 0,
) -> Followed:
    """The values of nodes, in the order of the graph, along the choices that are right.

    `known` are the values of what they read, `off` the same after a rounding; `given` are the choices of a program that
    computes in `precision`, `inside` those in the graphs of its control flow. A choice that is wrong is judged, and not
    followed. `before_it` counts the roundings of what the nodes read.
    """
    found = _Following(edge, nodes, known, off, precision, before_it)
    with torch.no_grad():
        for node in nodes:
            found.add(node, given.get(node), (inside or {}).get(node, ()))
    return Followed(found.references, found.moved, found.chosen, found.choices, choices_in(nodes))


class _Following:
    """A graph that is evaluated along choices, node by node."""

    def __init__(
        self, edge: EdgeMethod, nodes: Sequence[Node], known: Values, off: Values, precision: str, before_it: int
    ) -> None:
        self._edge, self._nodes, self._precision, self._before = edge, nodes, precision, before_it
        self._known, self._off = known, off
        self.references: dict[Node, Any] = {}
        self.moved: dict[Node, Any] = {}
        self.chosen: dict[Node, Chosen] = {}
        self.choices: dict[Node, torch.Tensor] = {}

    def add(self, node: Node, given: torch.Tensor | None, trace: Trace) -> None:
        """Evaluate the next node, whose choice is given, if it selects, or whose graphs' choices are."""
        through = self._through(node, trace) if trace else None
        if through is not None:
            self.references[node], self.moved[node] = through
            return
        self.references[node] = computed(self._edge, node, self.references, self._known)
        self.moved[node] = computed(self._edge, node, self.moved, self._off)
        rule = selection_of(node)
        if rule is None:
            return
        own = rule.choice(self.references[node])
        if given is not None and given.shape == own.shape:
            choice = rule.read(widened(given))
            names = [name for name in rule.reads if not _is_missing(node, name)]
            operands = {name: self._operand(argument(node, name)) for name in names}
            self.chosen[node] = rule.judged(operands, choice, own)
            if not self.chosen[node].difference:
                self.choices[node] = own = choice
        for values, others in ((self.references, self._known), (self.moved, self._off)):
            values[node] = _along(rule, node, own, values, others)

    def _operand(self, item: Any) -> Operand:
        """What a program may hold of something that a selecting operator reads."""
        value = torch.as_tensor(_value(item, self.references, self._known))
        none = torch.zeros_like(value, dtype=torch.float64)
        if not isinstance(item, Node):
            number = held(value.float(), self._precision) if value.is_floating_point() else value
            return _between(value.double(), number.double(), none)
        dtype, inside = item.meta["val"].dtype, before(item, self._nodes)
        accuracy = self._accuracy(inside)
        represented = held(value.to(dtype), self._precision).double()
        if accuracy.exact and not accuracy.steps:
            return _between(value.double(), represented, none)
        moved = torch.as_tensor(_value(item, self.moved, self._off))
        bound = slack(value, dtype, precision_of(inside, self._precision), accuracy, moved)
        return _between(value.double(), represented, bound)

    def _accuracy(self, nodes: Sequence[Node]) -> Accuracy:
        found = accuracy_of(self._edge, nodes, {**self._known, **self.references})
        if not self._before:
            return found
        return replace(found, exact=False, reduction_length=found.reduction_length + self._before)

    # -- control flow -------------------------------------------------------------------------------------------------

    def _through(self, node: Node, trace: Trace) -> tuple[Any, Any] | None:
        """The results of a call of control flow, and those after a rounding, along the choices of each round.

        None if the rounds are not those that the choices lead to.
        """
        sides = ((self.references, self._known), (self.moved, self._off))
        args, moved = (torch.fx.map_arg(node.args, partial(_value, values=v, known=k)) for v, k in sides)
        ways = [longest_way(before(item, self._nodes)) for item in node.all_input_nodes if item in self.references]
        rounds = _Rounds(self._edge.regions[node], self._precision, self._before + max(ways, default=0))
        found = rounds.results(kind_of(node), args, moved, trace)
        if found is not None:
            self.chosen.update(rounds.chosen)
        return found


class _Rounds:
    """The rounds of a call of control flow, followed one after another."""

    def __init__(self, regions: Sequence[EdgeMethod], precision: str, before_it: int) -> None:
        self._regions, self._precision, self._before = regions, precision, before_it
        #: Of each selecting operator inside, the judgments of all rounds as one.
        self.chosen: dict[Node, Chosen] = {}

    def results(self, kind: str, args: Any, moved: Any, trace: Trace) -> tuple[Any, Any] | None:
        """The results, and those after a rounding; None if the choices do not lead to these rounds."""
        if kind == "cond":
            (taken,), (predicate, _, operands) = trace, args
            return self._run(taken, operands, moved[2]) if (0 if bool(predicate) else 1) == taken.region else None
        (first, operands), (start, others) = args, moved
        if kind != "while_loop":
            rows = [
                self._run(round_, [*(i[row] for i in first), *operands], [*(i[row] for i in start), *others])
                for row, round_ in enumerate(trace)
            ]
            stacked = [[torch.stack(column) for column in zip(*side, strict=True)] for side in zip(*rows, strict=True)]
            return stacked[0], stacked[1]
        state, shifted = list(first), list(start)
        for test, body in itertools.zip_longest(trace[::2], trace[1::2]):
            (going, *_), _ = self._run(test, [*state, *operands], [*shifted, *others])
            if bool(going) is not (body is not None):
                return None
            if body is not None:
                state, shifted = self._run(body, [*state, *operands], [*shifted, *others])
        return state, shifted

    def _run(self, round_: Round, inputs: Sequence[Any], moved: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        region = self._regions[round_.region]
        nodes = calls_of(region)
        known, off = (given_to(region, [widened(item) for item in side]) for side in (inputs, moved))
        found = follow(region, nodes, known, off, round_.choices, self._precision, before_it=self._before)
        self._before += longest_way(nodes)
        for node, judged in found.chosen.items():
            self.chosen[node] = _both(self.chosen.get(node, judged), judged) if node in self.chosen else judged
        sides = ({**known, **found.references}, {**off, **found.moved})
        one, other = ([side[item] if isinstance(item, Node) else item for item in region.outputs] for side in sides)
        return one, other


def _both(one: Chosen, other: Chosen) -> Chosen:
    """Two judgments of an operator as one: with the counts of both, and the error of the worse."""
    worse = max(one, other, key=lambda item: (bool(item.difference), item.error - item.bound))
    return replace(worse, differing=one.differing + other.differing, total=one.total + other.total)


def along(choices: Choices, node: Node, values: Values, known: Values) -> Any:
    """The value of a node, which was computed, after its choice; the value itself if there is none."""
    rule = selection_of(node) if node in choices else None
    return values[node] if rule is None else _along(rule, node, choices[node], values, known)


def _along(rule: Selection, node: Node, choice: torch.Tensor, values: Values, known: Values) -> Any:
    read = {name: _value(argument(node, name), values, known) for name in rule.reads if not _is_missing(node, name)}
    return rule.along({name: torch.as_tensor(value) for name, value in read.items()}, choice, values[node])


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
