"""Operator cases: one for each operator and dtype, with examples drawn by its strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis.strategies import SearchStrategy

from ..context import Context
from ..drawing import draw, shrink
from ..outcome import Outcome
from ..recipe import Recipe
from ..strategies import OperatorStrategy, load_operators
from ..trial import try_recipe
from .base import Case

#: How many examples are drawn where one is tried: the first is the simplest, which is often empty, as others may be.
_TO_CHOOSE_FROM = 5


class RecipeCase(Case):
    """A case whose examples are recipes drawn from one strategy."""

    def strategy(self) -> SearchStrategy[Recipe]:
        """What the recipes are drawn from."""
        raise NotImplementedError

    def count(self, context: Context) -> int:
        """How many examples are drawn."""
        raise NotImplementedError

    def examples(self, context: Context) -> Sequence[Recipe]:
        """The recipes: the simplest first, then at random; one alone is of the random ones and has numbers to read."""
        drawn = draw(self.strategy(), self._drawn(context), context.seed_of(self.name))
        if self.count(context) > 1:
            return drawn
        return [next((recipe for recipe in drawn[1:] if recipe.has_elements), drawn[-1])]

    def _drawn(self, context: Context) -> int:
        return self.count(context) if self.count(context) > 1 else _TO_CHOOSE_FROM

    def run(self, example: Recipe, context: Context) -> Outcome:
        """A trial of the recipe."""
        outcome = try_recipe(example, context)
        if outcome.verdict.is_fault or outcome.core:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return outcome

    def snippet(self, example: Recipe, context: Context) -> str:
        """The recipe as Python."""
        return example.snippet(context.backend)

    def shrink(self, example: Recipe, fails: Callable[[Any], bool], context: Context) -> Recipe:
        """Hypothesis shrinks what it drew, starting with the first failing one of the same series."""
        return shrink(self.strategy(), self._drawn(context), context.seed_of(self.name), example, fails)


@dataclass(frozen=True)
class OperatorCase(RecipeCase):
    """One operator with one dtype."""

    operator: OperatorStrategy
    dtype: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """ "operators/aten.add.Tensor/float32"."""
        return f"operators/{self.operator.operator}/{self.dtype}"

    @property
    def tags(self) -> Mapping[str, str]:
        """Room, operator and dtype."""
        return {"room": "operators", "operator": self.operator.operator, "dtype": self.dtype}

    def strategy(self) -> SearchStrategy[Recipe]:
        """The operator's."""
        return self.operator.recipes(self.dtype)

    def count(self, context: Context) -> int:
        """All for the operator's first dtype, half for float16, a third for other floats, a fifth for the rest."""
        if self.dtype == self.operator.dtypes[0]:
            return context.profile.examples
        share = 2 if self.dtype == "float16" else 3 if "float" in self.dtype else 5
        return max(1, context.profile.examples // share)


def cases() -> Iterator[Case]:
    """All operators with all their dtypes."""
    for entry in load_operators().values():
        for dtype in entry.dtypes:
            yield OperatorCase(entry, dtype)
