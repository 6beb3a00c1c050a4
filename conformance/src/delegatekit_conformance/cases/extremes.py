"""Extreme sizes and numbers: for each operator and dtype, a handful of examples in which something is extreme.

Two of them, in one program, show whether the backend takes the operator at all; only then are the others drawn and
tried, several in one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from delegatekit.plugins import discovery

from ..context import Context
from ..joined import Joined, join
from ..outcome import Outcome
from ..recipe import Recipe
from ..strategies.extremes import Extremes, load_extremes
from ..strategies.extremes.determined import is_determined_in
from .base import Case
from .operators import Example, RecipeCase

#: Examples beside the written ones in the quick profile; dtypes that are not named have the last number.
_THEMED = {"float32": 5}
_THEMED_OTHERS = 2
#: Examples that show whether the backend takes the operator.
_FIRST = 2
#: Number of a case's examples that are searched for a smaller failing one.
_SOUGHT = 40


@dataclass(frozen=True)
class ExtremeCase(RecipeCase):
    """One operator with one dtype."""

    extremes: Extremes
    dtype: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """ "extremes/aten.add.Tensor/float32"."""
        return f"extremes/{self.extremes.operator}/{self.dtype}"

    @property
    def tags(self) -> Mapping[str, str]:
        """Room, operator and dtype."""
        return {"room": "extremes", "operator": self.extremes.operator, "dtype": self.dtype}

    def strategy(self) -> SearchStrategy[Recipe]:
        """Its examples in any order."""
        numbers = st.integers(0, _SOUGHT - 1).map(lambda number: self.extremes.recipe(self.dtype, number))
        return numbers.filter(lambda found: found is not None)  # type: ignore[return-value]

    def count(self, context: Context) -> int:
        """The written examples, and one of each theme in the quick profile; in others as many more as there are."""
        themed = _THEMED.get(self.dtype, _THEMED_OTHERS) * context.profile.joined
        return self.extremes.written(self.dtype) + themed

    def examples(self, context: Context) -> Sequence[Example]:
        """Two of the themes in one program; nothing where the profile leaves the dtype out."""
        if not self._is_tried(context):
            return ()
        first = self.extremes.written(self.dtype)
        return list(join(self._recipes(range(first, first + _FIRST), context), _FIRST))

    def further(self, first: Sequence[Example], context: Context) -> Sequence[Example]:
        """The written ones and the other themes: those whose sizes change alone, others together."""
        if not self._is_tried(context):
            return ()
        written = self.extremes.written(self.dtype)
        numbers = (*range(written), *range(written + _FIRST, self.count(context)))
        recipes = self._recipes(numbers, context)
        changing = (recipe for recipe in recipes if recipe.sizes)
        return [*join(recipes, self.size_of_program(context)), *changing, *self._beyond(context)]

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the backend took nothing of the first examples."""
        return bool(tried) and not any(outcome.delegates or outcome.verdict.is_fault for outcome in tried)

    def shrink(self, example: Example, fails: Callable[[Any], bool], context: Context) -> Example:
        """Of a program the part that fails by itself; then the one of the case's examples with the fewest elements."""
        try:
            if isinstance(example, Joined):
                example = next((part for part in example.parts if fails(part)), example)
            others = (one for one in self._recipes(range(_SOUGHT), context) if _elements(one) < _elements(example))
            return next((one for one in sorted(others, key=_elements) if fails(one)), example)
        except Exception:
            return example

    def _is_tried(self, context: Context) -> bool:
        """True if it is the operator's first dtype, has written examples, or the profile tries all dtypes."""
        is_first = self.dtype == self.extremes.dtypes[0]
        return is_first or context.profile.all_extremes or self.extremes.written(self.dtype) > 0

    def _beyond(self, context: Context) -> list[Recipe]:
        """Numbers beyond float16, in a program of their own, where the backend computes in float16.

        It must declare its results for them for each operator that it takes; they must not hide those of others.
        """
        if self.dtype != "float32" or _precision(context) != "float16":
            return []
        found = self.extremes.beyond(context.seed)
        return [] if found is None else [found]

    def _recipes(self, numbers: Sequence[int], context: Context) -> list[Recipe]:
        found = (self.extremes.recipe(self.dtype, number, context.seed) for number in numbers)
        recipes = [recipe for recipe in found if recipe is not None]
        precision = _precision(context)
        if precision not in ("float16", "bfloat16") or self.dtype != "float32":
            return recipes
        return [recipe for recipe in recipes if is_determined_in(precision, recipe)]


def _precision(context: Context) -> str:
    """The backend's compute precision, with the options of the run."""
    return discovery.get_backend(context.backend).compute_precision(context.options)


def _elements(example: Example) -> int:
    whole = example.whole if isinstance(example, Joined) else example
    return sum(math.prod(tensor.shape) for _, tensor in whole.tensors)


def cases() -> Iterator[Case]:
    """All operators, with float32, float16 and one integer dtype where they take them."""
    for entry in load_extremes().values():
        for dtype in entry.dtypes:
            yield ExtremeCase(entry, dtype)
