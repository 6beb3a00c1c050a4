"""What a pass is, and what runs a list of them: on a program before it is partitioned, and on a backend's own graph."""

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
    """Something that holds for a graph, or does not: what passes require and ensure.

    >>> ordered = Property("is in order", lambda numbers: None if sorted(numbers) == numbers else f"{numbers} is not")
    >>> ordered.fault([2, 1])
    '[2, 1] is not'
    """

    #: In words that follow "the graph": "has no aten.permute_copy.default".
    says: str
    #: Why it does not hold for a graph; None if it does.
    fault: Callable[[GraphT], str | None]


@dataclass(frozen=True)
class Change:
    """One thing that a pass changed."""

    #: The node, as `Call.description` tells it: "aten.mul.Tensor (mul_3) in layers.0 at model.py:12: `x * y`".
    where: str
    #: What it became and why, in words.
    reason: str
    #: The pass that did it; the runner fills it in.
    by: str = ""

    def __str__(self) -> str:
        return f"{self.by}: {self.where}: {self.reason}"


@dataclass(frozen=True)
class PassResult(Generic[GraphT]):
    """The graph after a pass, or after several, and what was changed."""

    graph: GraphT
    changes: tuple[Change, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
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

    #: What must hold for the graph before the pass: it is refused otherwise.
    requires: ClassVar[Sequence[Property[Any]]] = ()
    #: What holds for the graph after it: checked with `--debug`.
    ensures: ClassVar[Sequence[Property[Any]]] = ()

    @abstractmethod
    def __call__(self, graph: GraphT) -> PassResult[GraphT]:
        """Change the graph, in place or by making another one, and return it with what was changed."""


#: A pass, or the simplest form of one: a function with nothing to declare, which changes the graph in place or returns
#: another one. What it changed is not known.
PassLike: TypeAlias = "Pass[GraphT] | Callable[[GraphT], PassResult[GraphT] | GraphT | None]"


@dataclass(frozen=True)
class Repeat(Pass[GraphT]):
    """Passes that make room for each other: all of them in order, again and again until none changes anything.

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
            hint="do its passes undo each other's work? Or give Repeat a larger `most`",
        )


def run_passes(
    graph: GraphT, passes: Iterable[PassLike[GraphT]], verify: Callable[[GraphT], Any] | None = None
) -> PassResult[GraphT]:
    """The graph after all passes, in order, and all that they told about their changes.

    `verify` raises if the graph is not sound. It is called before the first pass and after each one if the environment
    variable DELEGATEKIT_VERIFY is set, as it is in tests and with `--debug`; so are the properties that passes ensure.
    Raises LoweringError, which names the pass, where one of these does not hold, and where a pass requires what does
    not.

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
                    hint="run a pass that makes it so before this one",
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
    """What messages call a pass: its `name` if it has one, else the class with the options, or the function's name."""
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
