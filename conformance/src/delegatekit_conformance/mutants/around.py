"""A case around another one; its class states all differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..cases import Case
from ..context import Context
from ..outcome import Outcome


class Around(Case):
    """Tries the examples of another case, with that case's own context where one is given."""

    #: Factor by which they take longer here.
    slower = 1.0

    def __init__(self, case: Case, *, name: str = "", context: Context | None = None) -> None:
        self.name = name or case.name
        self.case = case
        self._context = context

    def own(self, context: Context) -> Context:
        """The context that the case gets."""
        return self._context or context

    @property
    def tags(self) -> Mapping[str, str]:
        """The case's."""
        return self.case.tags

    @property
    def cost(self) -> float:
        """The case's, slowed down."""
        return self.case.cost * self.slower

    def examples(self, context: Context) -> Sequence[Any]:
        """The case's."""
        return self.case.examples(self.own(context))

    def further(self, first: Sequence[Any], context: Context) -> Sequence[Any]:
        """The case's."""
        return self.case.further(first, self.own(context))

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """The case's."""
        return self.case.is_settled(tried, self.own(context))

    def run(self, example: Any, context: Context) -> Outcome:
        """The case's outcome."""
        return self.case.run(example, self.own(context))

    def tried(self, example: Any, context: Context) -> Outcome:
        """The case's outcome."""
        return self.case.tried(example, self.own(context))
