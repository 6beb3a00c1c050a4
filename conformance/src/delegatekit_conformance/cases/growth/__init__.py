"""Growth: time and memory of repeated work stay constant over thousands of repetitions; growth is reported."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from ...context import IMPORTS, Context
from ...outcome import Outcome, Verdict
from ...trial import words
from ..base import Broken, Case, NotApplicable
from .histories import HISTORIES
from .lowerings import LoweringsCase
from .series import TooSlow, growth

__all__ = ["GrowthCase", "cases"]


class GrowthCase(Case):
    """One history: neither the resources of the process nor the cost of a unit grow with the number of units."""

    def __init__(self, history: str) -> None:
        self.history = history
        self.name = f"growth/{history}"

    @property
    def cost(self) -> float:
        """As the default profile allows for."""
        return 6.0

    def describe(self) -> str:
        """The repeated work."""
        return (HISTORIES[self.history].__doc__ or self.history).strip().splitlines()[0]

    def examples(self, context: Context) -> Sequence[str]:
        """The history itself."""
        return (self.describe(),)

    def tried(self, example: str, context: Context) -> Outcome:
        """`run`: other rooms watch the settings of the process; here this would hide the cost of a call."""
        return self.run(example, context)

    def run(self, example: str, context: Context) -> Outcome:
        """Repeat it, and fit the meters' readings."""
        start = time.perf_counter()
        verdict, detail = self._judged(context)
        blame = "backend" if verdict.is_fault else ""
        seconds = time.perf_counter() - start
        return Outcome(verdict, detail, example=example, blame=blame, seconds=seconds, delegates=1)

    def _judged(self, context: Context) -> tuple[Verdict, str]:
        unit = self.history
        begun = False
        try:
            with HISTORIES[self.history](context) as history, torch.no_grad():
                unit, begun = f"{history.unit}s", True
                found, units = growth(history, context.profile.growth_seconds, context.timeout / 2)
        except (NotApplicable, TooSlow) as reason:
            return Verdict.NOT_APPLICABLE, str(reason)
        except Broken as error:
            return Verdict.VIOLATION, str(error)
        except Exception as error:
            if not begun:  # the rule contract/compiles-what-it-takes reports it
                return Verdict.NOT_APPLICABLE, f"there is nothing to begin with: {words(error)}"
            return Verdict.VIOLATION, f"fails after some {unit}: {words(error)}"
        if found is not None:
            return Verdict.VIOLATION, found.detail
        return Verdict.PASSED, f"{units} {unit}"

    def snippet(self, example: str, context: Context) -> str:
        """A script that repeats the same history."""
        imports = f"from delegatekit_conformance.cases.growth import GrowthCase\n{IMPORTS}\n"
        return f"{imports}print(GrowthCase({self.history!r}).run({example!r}, {context.script}))\n"


def cases() -> Iterator[Case]:
    """All histories, and the lowerings of each kind of program."""
    for history in HISTORIES:
        yield GrowthCase(history)
    yield LoweringsCase()
