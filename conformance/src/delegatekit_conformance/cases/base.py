"""A case: a name, examples, and a way to try one example. The runner knows nothing else about cases."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from delegatekit.plugins import discovery
from delegatekit_api import RuntimeUnavailableError

from .. import stock
from ..context import Context
from ..outcome import Outcome, Verdict
from .special_values import explained
from .surroundings import watched

#: The stock runtime's part of a script that lowers `program` and calls it with `inputs`.
_IN_STOCK = """
from delegatekit_conformance import stock

data = program.buffer  # must live as long as the method
print("stock:      ", stock.load(data, [{backend!r}])(tuple(inputs)))
"""


class Case(ABC):
    """One case: the unit that is selected, scheduled and reported. Examples are tried one after the other.

    `name` is unique: "room/subject" or "room/subject/dtype". Examples must be the same in every process for the same
    context, picklable, and have a `describe()` that gives them in one line.
    """

    name: str

    @property
    def tags(self) -> Mapping[str, str]:
        """Keys by which reports group; "room" is the name's first part."""
        return {"room": self.name.partition("/")[0]}

    @property
    def cost(self) -> float:
        """Approximate seconds of the case in the default profile: long ones are started first."""
        return 1.0

    @abstractmethod
    def examples(self, context: Context) -> Sequence[Any]:
        """All examples of the case."""

    def further(self, first: Sequence[Any], context: Context) -> Sequence[Any]:
        """Examples that come after the `first`, those of `examples`, where these do not settle the case."""
        return ()

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the outcomes of `examples` leave nothing for `further` ones to find."""
        return False

    @abstractmethod
    def run(self, example: Any, context: Context) -> Outcome:
        """Try one example in this process. The backend may crash or hang it. Must not raise."""

    def tried(self, example: Any, context: Context) -> Outcome:
        """`run`, while checking that the backend's hooks do not change this process: a fault in every case."""
        if context.stock:
            stock.start()
        with watched(context.backend) as changes:
            outcome = self.run(example, context)
            if _waits_for_another(outcome, context):
                # A runtime of one device at a time may still hold unreferenced objects.
                gc.collect()
                outcome = self.run(example, context)
            outcome = explained(example, outcome, context)
        if outcome.verdict is Verdict.STOCK:
            snippet = outcome.snippet or self.snippet(example, context)
            return replace(outcome, snippet=snippet + _IN_STOCK.format(backend=context.backend))
        if not changes or outcome.verdict.is_fault:
            return outcome
        return replace(outcome, verdict=Verdict.VIOLATION, detail=changes[0], blame="backend")

    def snippet(self, example: Any, context: Context) -> str:
        """A script that reproduces the example, or an empty text."""
        return ""

    def shrink(self, example: Any, fails: Callable[[Any], bool], context: Context) -> Any:
        """A smaller example for which `fails` is true, too; `fails` is expensive and may raise to end the search."""
        return example


def _waits_for_another(outcome: Outcome, context: Context) -> bool:
    """True if the runtime, which is available, refused a file: perhaps because of other files in this process."""
    refused = outcome.verdict is Verdict.UNAVAILABLE or RuntimeUnavailableError.__name__ in outcome.detail
    return refused and discovery.get_backend(context.backend).runtime_availability().available


class Broken(Exception):  # noqa: N818  rules raise it as a statement
    """Raised by a rule that the backend breaks; says how."""


class Late(Broken):
    """Raised by a rule that timed out; the runner tries it again before the backend is blamed."""


class NotApplicable(Exception):  # noqa: N818
    """Raised by a rule that does not concern the backend; says why."""


class Rule(Case):
    """A case of one example: a function that returns an observation, or raises `Broken` or `NotApplicable`."""

    def __init__(self, name: str, check: Callable[[Context], str | None], *, cost: float = 1.0) -> None:
        self.name = name
        self._check = check
        self._cost = cost

    @property
    def cost(self) -> float:
        """As given."""
        return self._cost

    def describe(self) -> str:
        """The first line of the rule's docstring: the requirement."""
        return (self._check.__doc__ or self.name).strip().splitlines()[0]

    def examples(self, context: Context) -> Sequence[str]:
        """The rule itself."""
        return (self.describe(),)

    def run(self, example: str, context: Context) -> Outcome:
        """Check the rule."""
        try:
            detail = self._check(context) or ""
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason))
        except Late as words:
            return Outcome(Verdict.TIMEOUT, str(words), blame="backend")
        except Broken as words:
            return Outcome(Verdict.VIOLATION, str(words), blame="backend")
        except Exception as error:
            return Outcome(Verdict.VIOLATION, f"{type(error).__name__}: {error}", blame="backend")
        return Outcome(Verdict.PASSED, detail)
