"""Passes, and the runner of a list of them: on a program before it is partitioned, and on a backend's own graph."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from delegatekit_api import DelegateKitError, LoweringError

#: The environment variable with which DelegateKit turns the checks at stage borders on (`--debug` sets it).
VERIFY: Final = "DELEGATEKIT_VERIFY"

GraphT = TypeVar("GraphT")


@dataclass(frozen=True)
class Property(Generic[GraphT]):
    """A condition that holds for a graph or not: passes require and ensure such properties.

    >>> ordered = Property("is in order", lambda numbers: None if sorted(numbers) == numbers else f"{numbers} is not")
    >>> ordered.fault([2, 1])
    '[2, 1] is not'
    """

    #: Completes a sentence that begins with "the graph": "has no aten.permute_copy.default".
    says: str
    #: The reason why it does not hold for a graph; None if it does.
    fault: Callable[[GraphT], str | None]


@dataclass(frozen=True)
class Change:
    """One thing that a pass changed."""

    #: The node, as `Call.description` shows it: "aten.mul.Tensor (mul_3) in layers.0 at model.py:12: `x * y`".
    where: str
    #: The replacement and the reason, in words.
    reason: str
    #: The pass that made the change; set by the runner.
    by: str = ""

    def __str__(self) -> str:
        return f"{self.by}: {self.where}: {self.reason}"


@dataclass(frozen=True)
class PassResult(Generic[GraphT]):
    """The graph after one or several passes, and the changes."""

    graph: GraphT
    changes: tuple[Change, ...] = ()

    @property
    def changed(self) -> bool:
        """True if anything was changed."""
        return bool(self.changes)


class Pass(ABC, Generic[GraphT]):
    """A rewrite of a graph. Make it a frozen dataclass, whose fields are its options, and give it a `__call__`.

    >>> @dataclass(frozen=True)
    ... class DropBelow(Pass[list[int]]):
    ...     limit: int = 1
    ...
    ...     def __call__(self, graph: list[int]) -> PassResult[list[int]]:
    ...         low = [number for number in graph if number < self.limit]
    ...         left = [number for number in graph if number >= self.limit]
    ...         return PassResult(left, tuple(Change(str(number), "is too small") for number in low))
    >>> result = run_passes([3, 0, 2], [DropBelow(), DropBelow(limit=3)])
    >>> result.graph, result.changes[1]
    ([3], Change(where='2', reason='is too small', by='DropBelow(limit=3)'))
    """

    #: Conditions on the graph before the pass: it is refused otherwise.
    requires: ClassVar[Sequence[Property[Any]]] = ()
    #: Conditions that hold for the graph after the pass: checked with `--debug`.
    ensures: ClassVar[Sequence[Property[Any]]] = ()

    @abstractmethod
    def __call__(self, graph: GraphT) -> PassResult[GraphT]:
        """Change the graph, in place or by making another one, and return it with the changes."""


#: A pass, or its simplest form: a function without declarations, which changes the graph in place or returns another
#: one. Its changes are not recorded.
PassLike: TypeAlias = "Pass[GraphT] | Callable[[GraphT], PassResult[GraphT] | GraphT | None]"


@dataclass(frozen=True)
class Repeat(Pass[GraphT]):
    """Passes that enable each other: all of them in order, repeated until none changes anything.

    Raises LoweringError if `most` rounds are not enough.
    """

    passes: tuple[Pass[GraphT], ...]
    most: int = 20

    def __call__(self, graph: GraphT) -> PassResult[GraphT]:
        """Run the rounds."""
        changes: list[Change] = []
        for _ in range(self.most):
            result = run_passes(graph, self.passes)
            graph = result.graph
            if not result.changed:
                return PassResult(graph, tuple(changes))
            changes.extend(result.changes)
        names = ", ".join(dict.fromkeys(change.by for change in result.changes))
        raise LoweringError(
            f"{names} still changed something in round {self.most}: {result.changes[0].where}",
            hint="check whether its passes undo each other's work, or give Repeat a larger `most`",
        )


def run_passes(
    graph: GraphT, passes: Iterable[PassLike[GraphT]], verify: Callable[[GraphT], Any] | None = None
) -> PassResult[GraphT]:
    """The graph after all passes, in order, and all reported changes.

    `verify` raises if the graph is not valid. It is called before the first pass and after each one if the environment
    variable DELEGATEKIT_VERIFY is set, as it is in tests and with `--debug`; so are the properties that passes ensure.
    Raises LoweringError, which names the pass, if one of these does not hold, or if a pass's requirement is not met.

    >>> def drop_zeros(numbers: list[int]) -> list[int]:
    ...     return [number for number in numbers if number]
    ...
    >>> run_passes([3, 0, 2], [drop_zeros, list.sort]).graph
    [2, 3]
    """
    debug = bool(os.environ.get(VERIFY))
    changes: list[Change] = []
    if verify is not None and debug:
        _check(verify, graph, "before the passes")
    for apply in passes:
        name = pass_name(apply)
        for wanted in getattr(apply, "requires", ()):
            if fault := wanted.fault(graph):
                raise LoweringError(
                    f"requires a graph that {wanted.says}: {fault}",
                    where=f"before the pass {name}",
                    hint="run a pass that ensures it before this one",
                )
        made = apply(graph)
        if isinstance(made, PassResult):
            graph = made.graph
            changes.extend(change if change.by else replace(change, by=name) for change in made.changes)
        elif made is not None:
            graph = made
        if verify is not None and debug:
            _check(verify, graph, f"after the pass {name}")
        for told in getattr(apply, "ensures", ()) if debug else ():
            if fault := told.fault(graph):
                raise LoweringError(f"ensures a graph that {told.says}: {fault}", where=f"after the pass {name}")
    return PassResult(graph, tuple(changes))


def pass_name(apply: Any) -> str:
    """The name of a pass in messages: its `name` if it has one, else the class with the options, or the function."""
    named = getattr(apply, "name", None)
    if isinstance(apply, Pass):
        return named if isinstance(named, str) and named else repr(apply)
    inner = getattr(apply, "func", apply)  # functools.partial
    return str(getattr(inner, "__name__", inner))


def _check(verify: Callable[[GraphT], Any], graph: GraphT, where: str) -> None:
    try:
        verify(graph)
    except DelegateKitError as error:
        what = error.what if error.where is None else f"{error.where}: {error.what}"
        raise LoweringError(what, where=where, hint=error.hint) from error
