"""Fusion by example: a pass that replaces what one function computes with what another one computes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, Operand, ProgramView
from delegatekit_api.nodes import argument, operator_name

from .passes import Change, Pass, PassResult
from .rewriting import EditableProgram, Traced

#: Operators whose first two operands commute.
COMMUTATIVE: Final = frozenset(
    f"aten.{name}"
    for name in (
        *("add.Tensor", "mul.Tensor", "maximum.default", "minimum.default", "fmax.default", "fmin.default"),
        *("eq.Tensor", "ne.Tensor", "logical_and.default", "logical_or.default", "logical_xor.default"),
        *("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor"),
    )
)

#: The counterparts of a pattern's nodes and placeholders: nodes of the program, and numbers.
Binding: TypeAlias = dict[Any, Any]


@dataclass(frozen=True)
class Fusion(Pass[EditableProgram]):
    """Replaces what one function computes with what another one computes, wherever a program computes the first.

    `before` and `after` take the same arguments: tensors, and numbers that may vary (an epsilon, a slope). `example`
    has one of each: a tensor's rank and dtype matter, its sizes and elements do not; a number must be one that the
    function does not use otherwise. Both functions return one tensor, or equally long tuples: then the first value must
    be computed from everything else that `before` computes.

    A part of the program matches if it computes `before`, traced for the sizes, dtypes and numbers there, operator by
    operator, whatever the order of an addition's or a product's operands. No value in between may be read from outside.
    `where` is called for each match, with its operands and numbers by the names of the parameters, and may refuse it.

    New nodes have the source line, module and debug handle of the last operator that they replace.
    """

    before: Callable[..., Any]
    after: Callable[..., Any]
    example: tuple[Any, ...]
    #: Its name in messages.
    name: str = ""
    where: Callable[[Mapping[str, Any]], bool] | None = None

    def __repr__(self) -> str:
        return (
            f"Fusion({getattr(self.before, '__name__', self.before)} -> {getattr(self.after, '__name__', self.after)})"
        )

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        """Replace all matches, in graph order."""
        pattern = _Pattern.of(self.before, self.example, program)
        changes: list[Change] = []
        gone: set[Node] = set()
        for node in [node for node in program.graph.nodes if node.target == pattern.root.target]:
            found = self._place(pattern, node, program) if node not in gone else None
            if found is None or gone & found.inner:
                continue
            changes.extend(self._replaced(found, program))
            gone |= found.inner
        return PassResult(program, tuple(changes))

    def _place(self, pattern: _Pattern, node: Node, program: EditableProgram) -> _Place | None:
        for bound in pattern.matches(node, program, exact=False):
            given = [bound[item] for item in pattern.parameters]
            exact = _Pattern.of_values(self.before, given, program)
            if exact is None:
                continue
            for again in exact.matches(node, program, exact=True):
                if [again[item] for item in exact.traced.inputs] != [item for item in given if isinstance(item, Node)]:
                    continue
                place = _Place.of(exact, again, given)
                if place is not None and self._wanted(place, program.view):
                    return place
        return None

    def _wanted(self, place: _Place, view: ProgramView) -> bool:
        if self.where is None:
            return True
        names = list(inspect.signature(self.before).parameters)
        operands = [Operand(item, view) if isinstance(item, Node) else item for item in place.given]
        return bool(self.where(dict(zip(names, operands, strict=False))))

    def _replaced(self, place: _Place, program: EditableProgram) -> Iterator[Change]:
        created = program.inline(place.last, self.after, *place.given)
        if len(created) != len(place.outputs):
            raise LoweringError(f"`after` returns {len(created)} values, and `before` {len(place.outputs)}")
        names = " and ".join(dict.fromkeys(operator_name(item) for item in created if isinstance(item, Node)))
        parts = ", ".join(operator_name(item) for item in place.ordered)
        for old, new in zip(place.outputs, created, strict=True):
            yield program.replace(old, new, f"{parts} became {names}")
        for node in reversed(place.ordered):
            program.graph.erase_node(node)  # a dead reader would prevent the next match


@dataclass(frozen=True)
class _Place:
    """A part of a program that computes a pattern."""

    given: Sequence[Any]
    outputs: tuple[Node, ...]
    #: The operator calls, in the pattern's order.
    ordered: tuple[Node, ...]

    @property
    def inner(self) -> set[Node]:
        return set(self.ordered)

    @property
    def last(self) -> Node:
        """The call whose first output is the result: all others are before it."""
        return self.outputs[0]

    @classmethod
    def of(cls, pattern: _Pattern, bound: Binding, given: Sequence[Any]) -> _Place | None:
        """The match; None if something outside reads a value that would be removed, or one before it is computed."""
        calls = tuple(sorted({bound[node] for node in pattern.calls}))
        outputs = tuple(bound[item] for item in pattern.traced.outputs)
        inner, last = set(calls), outputs[0]
        for node in calls:
            outside = [user for user in node.users if user not in inner]
            if node not in outputs and outside:
                return None
            if node is not last and any(user < last for user in outside):
                return None
        return cls(given, outputs, calls)


@dataclass(frozen=True)
class _Pattern:
    """A function in the dialect of a program."""

    traced: Traced
    #: The counterpart of each parameter: its placeholder, or the places of a number among the arguments.
    parameters: tuple[Any, ...]
    #: Node and position of an argument -> the parameter whose number it is.
    numbers: Mapping[tuple[Node, str], int]

    @property
    def root(self) -> Node:
        """The call that computes the first output."""
        return self.traced.outputs[0]  # type: ignore[no-any-return]

    @property
    def calls(self) -> tuple[Node, ...]:
        return tuple(node for node in self.traced.graph.nodes if _is_work(node))

    @classmethod
    def of(cls, function: Callable[..., Any], example: Sequence[Any], program: EditableProgram) -> _Pattern:
        """The pattern for values like those of an example. Raises LoweringError for an unsuitable function."""
        first = program.trace(function, example, dialect=True)
        others = [_other(item) if _is_number(item) else item for item in example]
        second = program.trace(function, others, dialect=True)
        parameters, numbers = _number_places(first, second, example, others)
        tensors = iter(first.inputs)
        found = cls(first, tuple(item if item is not None else next(tensors) for item in parameters), numbers)
        found._check(function, example)
        return found

    @classmethod
    def of_values(cls, function: Callable[..., Any], given: Sequence[Any], program: EditableProgram) -> _Pattern | None:
        """The pattern for the values of a match; None if the function does not accept them."""
        values = [item.meta["val"] if isinstance(item, Node) else item for item in given]
        try:
            return cls(program.trace(function, values, dialect=True), (), {})
        except LoweringError:
            return None

    def _check(self, function: Callable[..., Any], example: Sequence[Any]) -> None:
        name = getattr(function, "__name__", function)
        if any(not isinstance(item, Node) or not _is_work(item) for item in self.traced.outputs):
            raise LoweringError(f"`before` ({name}) returns something that no operator computes")
        seen, waiting = set(), [self.root]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(node.all_input_nodes)
        missing = next((node for node in (*self.calls, *self.traced.inputs) if node not in seen), None)
        if missing is not None:
            raise LoweringError(
                f"the first value that `before` ({name}) returns does not depend on {missing.name}",
                hint="return the value first that is computed from all others; leave out arguments that are not used",
            )
        for index, item in enumerate(example):
            if _is_number(item) and index not in self.numbers.values():
                raise LoweringError(
                    f"argument {index} of `before` ({name}), the number {item!r}, is not an argument of an operator",
                    hint="numbers must reach an operator as they are; write one that never changes into the function",
                )

    def matches(self, node: Node, program: EditableProgram, *, exact: bool) -> Iterator[Binding]:
        """All bindings of the pattern's nodes to nodes of the program, its root to `node`.

        Arguments that are not tensors are compared only if `exact`.
        """
        matcher = _Matcher(self, program, exact)
        for bound in matcher.node(self.root, node, {}):
            if all(item in bound for item in self.calls):
                yield bound


@dataclass(frozen=True)
class _Number:
    """The key of a number's parameter in a binding."""

    parameter: int


class _Matcher:
    def __init__(self, pattern: _Pattern, program: EditableProgram, exact: bool) -> None:
        self._pattern, self._program, self._exact = pattern, program, exact
        self._view = program.view

    def node(self, wanted: Node, found: Any, bound: Binding) -> Iterator[Binding]:
        """All bindings of a node of the pattern, and all before it, to one of the program."""
        if wanted in bound:
            if bound[wanted] is found:
                yield bound
            return
        if not isinstance(found, Node):
            return
        if wanted in self._pattern.traced.constants:
            data = self._program.constants.get(found)
            if data is None or not _equal(data, self._pattern.traced.constants[wanted]):
                return
            yield {**bound, wanted: found}
        elif wanted.op == "placeholder":
            if hasattr(found.meta.get("val"), "dtype"):
                yield {**bound, wanted: found}
        elif not _is_work(wanted):
            # A size that changes: the same expression of the same symbols.
            if str(wanted.meta.get("val")) == str(found.meta.get("val")):
                yield {**bound, wanted: found}
        elif wanted.target == found.target:
            for order in _orders(wanted):
                yield from self._arguments(wanted, found, order, {**bound, wanted: found})

    def _arguments(self, wanted: Node, found: Node, order: Sequence[str], bound: Binding) -> Iterator[Binding]:
        ours, theirs = _arguments_of(wanted), _arguments_of(found)
        ways = iter([bound])
        for name, other in zip(ours, order, strict=True):
            ways = self._after(ways, (wanted, name), ours[name], theirs[other])
        yield from ways

    def _after(self, ways: Iterator[Binding], place: tuple[Node, str], wanted: Any, found: Any) -> Iterator[Binding]:
        for bound in ways:
            yield from self._argument(place, wanted, found, bound)

    def _argument(self, place: tuple[Node, str], wanted: Any, found: Any, bound: Binding) -> Iterator[Binding]:
        parameter = self._pattern.numbers.get(place)
        if parameter is not None:
            key = _Number(parameter)
            if type(found) is type(wanted) and bound.get(key, found) == found:
                yield {**bound, key: found}
        elif isinstance(wanted, Node):
            yield from self.node(wanted, found, bound)
        elif isinstance(wanted, list | tuple):
            if isinstance(found, list | tuple) and (len(wanted) == len(found) or not self._exact):
                ways = iter([bound])
                for ours, theirs in zip(wanted, found, strict=False):
                    ways = self._after(ways, place, ours, theirs)
                yield from ways
        elif not self._exact or (type(wanted) is type(found) and repr(wanted) == repr(found)):
            yield bound


def _is_work(node: Node) -> bool:
    """True if a node computes one or several tensors."""
    value = node.meta.get("val")
    return node.op == "call_function" and (hasattr(value, "dtype") or isinstance(value, tuple | list))


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _other(number: float) -> float:
    """Another number of the same type, to trace where it is used."""
    return number + 1 if isinstance(number, int) else number * 1.25 + 0.001


def _arguments_of(node: Node) -> dict[str, Any]:
    """The arguments by name, defaults filled in; by position for functions without a schema."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(position): item for position, item in enumerate(node.args)}
    return {parameter.name: argument(node, parameter.name) for parameter in schema.arguments}


def _orders(node: Node) -> list[list[str]]:
    names = list(_arguments_of(node))
    if operator_name(node) not in COMMUTATIVE:
        return [names]
    arguments = _arguments_of(node)
    plain = arguments.get("alpha", 1) == 1
    return [names, [names[1], names[0], *names[2:]]] if plain else [names]


def _number_places(
    first: Traced, second: Traced, example: Sequence[Any], others: Sequence[Any]
) -> tuple[list[Any], dict[tuple[Node, str], int]]:
    """For each parameter a key of its number (None for a tensor), and the arguments that take a parameter's number."""
    parameters = [_Number(index) if _is_number(item) else None for index, item in enumerate(example)]
    numbers: dict[tuple[Node, str], int] = {}
    for ours, theirs in itertools.zip_longest(first.graph.nodes, second.graph.nodes):
        if ours is None or theirs is None or ours.target != theirs.target:
            if ours is None or theirs is None or ours.op == "call_function":
                raise LoweringError("`before` calls other operators for other numbers: write it for one of them")
            continue
        if ours.op != "call_function":
            continue
        told, told_again = _arguments_of(ours), _arguments_of(theirs)
        for name, value in told.items():
            for index, (one, other) in enumerate(zip(example, others, strict=True)):
                if _is_number(one) and value == one and told_again[name] == other and _is_number(value):
                    numbers[ours, name] = index
    return parameters, numbers


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype and torch.equal(first, second)
