"""`repartition`: lowers as `lower` does, without the operators that a backend's compiler fails at."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from delegatekit.compiling import Compiling
from delegatekit.errors import UNEXPECTED, as_ours
from delegatekit.partition import Selectors
from delegatekit.pipeline import LoweredProgram, Partitioning, PlannedProgram, lower, plan, takes
from delegatekit_api import DelegateKitError, LoweringError

from ..arguments import Repartitioning
from .search import Search
from .taken import Skipping, TakenOut, identity
from .watching import Failure, OutOfTriesError, Watch, Watching


@dataclass(frozen=True)
class Repartitioned:
    """A lowered program, and the operators that had to be taken out for it, in the order in which they were found."""

    program: LoweredProgram
    taken_out: tuple[TakenOut, ...]


@as_ours(lambda fault: LoweringError(fault, where="repartition", hint=UNEXPECTED))
@takes(Repartitioning)
def repartition(given: Repartitioning) -> Repartitioned:
    """Lower a model as `lower` does, and take out of the delegates what a backend's compiler fails at.

    An error of a compiler is not the end, nor its crash or a timeout in a process of its own (`compiling`). What the
    error names is left to the next backend or the runtime, or else an operator that is found by compiling parts of the
    partition, and the program is lowered again. An operator that several methods have alike is taken out of all. What
    compiles is compiled once.

    Raises as `lower` does for everything else, and LoweringError, with what was tried, if `limit` is reached.
    """
    return _Work(given).done()


@dataclass
class _Work:
    given: Repartitioning
    taken: list[TakenOut] = field(default_factory=list)
    #: What no backend, or this one, may take: a backend, and operators.
    skipped: list[tuple[str, Skipping]] = field(default_factory=list)

    def done(self) -> Repartitioned:
        """The program, once it compiles."""
        arguments = vars(self.given) | {"inputs": None, "kwargs": None, "dynamic_shapes": None}
        watch = Watch(arguments.pop("limit"))
        compiling = Watching(**vars(self.given.compiling or Compiling()), watch=watch)
        arguments |= {"model": self.given.programs(), "compiling": compiling}
        while True:
            watch.failure = None
            try:
                program = lower(**arguments | {"skip": self._skip()})
            except DelegateKitError as error:
                if watch.failure is None:
                    raise
                try:
                    self._take_out(watch.failure, compiling, arguments)
                except OutOfTriesError:
                    raise self._given_up(error) from error
            else:
                return Repartitioned(program, tuple(self.taken))

    def _take_out(self, failure: Failure, compiling: Watching, arguments: Mapping[str, Any]) -> None:
        """Find an operator that the compiler fails at, and leave it out from now on."""
        backend = failure.task.backend.name
        planning = {name: arguments[name] for name in inspect.signature(Partitioning).parameters}

        def planned(rest: Skipping) -> PlannedProgram:
            return plan(**planning | {"skip": self._skip((backend, rest))})

        node, taken = Search(failure, planned, compiling).found()
        self.taken.append(taken)
        self.skipped.append((backend, Skipping([identity(node)], taken.reason)))

    def _skip(self, *more: tuple[str, Skipping]) -> Selectors | None:
        """What the user wants skipped, and what is taken out."""
        asked, out = self.given.skip, [*self.skipped, *more]
        if not out:
            return asked
        return {
            name: [
                *((asked.get(name, ()) if isinstance(asked, Mapping) else asked) or ()),
                *(skipping for backend, skipping in out if backend == name),
            ]
            for name in self.given.backends
        }

    def _given_up(self, error: DelegateKitError) -> LoweringError:
        """The compiler's error, with what was tried."""
        out = "".join(f"\n    taken out before: {item}" for item in self.taken)
        tried = f"{self.given.limit} compilations of parts did not find all operators that the compiler fails at"
        hint = "raise the limit, or leave the backend out: if much fails for one reason, it is none of an operator"
        return LoweringError(f"{error.what}\n    {tried}{out}", where=error.where, hint=hint)
