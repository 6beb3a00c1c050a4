"""Makes rules out of functions: the function's name becomes the case's, its docstring is the requirement."""

from __future__ import annotations

from collections.abc import Callable

from ...context import Context
from ..base import Case, Rule

Check = Callable[[Context], "str | None"]


class Rules(list[Case]):
    """The rules of one module, collected by decorating them."""

    def add(self, check: Check) -> Check:
        """Add `def some_name(context)` as "contract/some-name"."""
        return self.costing(1.0)(check)

    def costing(self, seconds: float) -> Callable[[Check], Check]:
        """The same for a rule that takes longer."""

        def decorate(check: Check) -> Check:
            self.append(Rule(f"contract/{check.__name__.replace('_', '-')}", check, cost=seconds))
            return check

        return decorate
