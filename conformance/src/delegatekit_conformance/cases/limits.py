"""Limits: how large a size of an operator may be until the backend leaves it, found by halving, and examples there.

Where a backend draws the line stands in its code alone, and no example that is drawn at random meets it: a line that is
one too far ends in a compiler's error or in wrong numbers, for one size of thousands. The last size that is taken must
be right, and the report lists each line with the backend's reason, so that a comparison of two runs tells of one that
has moved. Only the partitioner is asked on the way: nothing is compiled but the last example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import delegatekit

from ..context import Context
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..strategies.extremes import Extremes, load_extremes
from ..strategies.extremes.determined import is_determined
from ..trial import try_recipe
from .base import Case

#: The largest size that is asked for: above the 65,536 and the 16,384 of many devices.
_MOST = 1 << 18
#: The size that must be taken, so that there is a line above it.
_LEAST = 2
#: How many sizes of an operator are tried in each profile; each is another dimension of another example.
_SIZES = {"quick": 0, "default": 4}
_MORE_SIZES = 12
#: So many of them tell whether the backend takes the operator at all.
_FIRST = 2
#: Among so many examples those are sought that have a size.
_SOUGHT = 24


@dataclass(frozen=True)
class Lever:
    """One size of an example of an operator."""

    operator: str
    dtype: str
    #: Which example, and which of its sizes.
    number: int

    def describe(self) -> str:
        """One line."""
        return f"{self.operator} of {self.dtype}: size {self.number} as large as the backend takes it"

    def recipe(self, size: int) -> Recipe | None:
        """The example with this size; None if it has none."""
        return _extremes(self.operator).sized(self.dtype, self.number, size)


@dataclass(frozen=True)
class _Answer:
    """What a partitioner says of an example."""

    taken: int
    reasons: tuple[str, ...]


class _Failed(Exception):  # noqa: N818  it ends a search
    """Raised with an example that cannot be asked about: a trial of it says whose fault that is."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe.describe())
        self.recipe = recipe


class LimitCase(Case):
    """The sizes of one operator."""

    def __init__(self, operator: str) -> None:
        self.name = f"limits/{operator}"
        self._operator = operator

    @property
    def tags(self) -> Mapping[str, str]:
        """Room and operator."""
        return {"room": "limits", "operator": self._operator}

    def examples(self, context: Context) -> Sequence[Lever]:
        """The first of the operator's sizes."""
        return self._levers(context)[:_FIRST]

    def further(self, first: Sequence[Lever], context: Context) -> Sequence[Lever]:
        """The others."""
        return self._levers(context)[len(first) :]

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """Whether the backend leaves the first examples however small they are."""
        return all(outcome.verdict is Verdict.NOT_APPLICABLE for outcome in tried)

    def _levers(self, context: Context) -> Sequence[Lever]:
        dtype = _extremes(self._operator).dtypes[0]
        every = (Lever(self._operator, dtype, number) for number in range(_SOUGHT))
        count = _SIZES.get(context.profile.name, _MORE_SIZES)
        return list(islice((lever for lever in every if lever.recipe(_LEAST) is not None), count))

    def run(self, example: Lever, context: Context) -> Outcome:
        """Seek the line, and try the example on this side of it."""
        try:
            return replace(_sought(example, context), example=example.describe())
        except _Failed as failed:
            return try_recipe(failed.recipe, context)

    def snippet(self, example: Lever, context: Context) -> str:
        """The smallest example: the line is found by asking."""
        recipe = example.recipe(_LEAST)
        return recipe.snippet(context.backend) if recipe else ""


def _sought(example: Lever, context: Context) -> Outcome:
    """What comes of the last example that is taken. Raises _Failed if the backend cannot be asked about one."""
    answers: dict[int, _Answer | None] = {}

    def answer(size: int) -> _Answer | None:
        if size not in answers:
            answers[size] = _asked(example.recipe(size), context)
        return answers[size]

    least = answer(_LEAST)
    if least is None or not least.taken:
        why = "no such example" if least is None else "; ".join(least.reasons) or "it is not taken"
        return Outcome(Verdict.NOT_APPLICABLE, why)

    def is_taken(size: int) -> bool:
        found = answer(size)
        return found is not None and found.taken >= least.taken

    low, high = _LEAST, _MOST
    while high - low > 1 and not is_taken(high):
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    if is_taken(high):
        return Outcome(Verdict.PASSED, f"{high} is taken")
    beyond = answer(high)
    if beyond is None:
        return Outcome(Verdict.PASSED, f"{low} is taken, and there is no larger example")
    told = tuple(f"not above {low}: {reason}" for reason in beyond.reasons if reason not in least.reasons)
    return replace(_at(example.recipe(low), context), refusals=told)


def _at(recipe: Recipe | None, context: Context) -> Outcome:
    """What comes of the last example that is taken."""
    if recipe is None or not is_determined(recipe):
        return Outcome(Verdict.PASSED, "the last example that is taken has no determined result")
    return try_recipe(recipe, context)


def _asked(recipe: Recipe | None, context: Context) -> _Answer | None:
    """What the backend says of a recipe; None if there is none, or eager refuses it."""
    if recipe is None:
        return None
    try:
        program = recipe.export()
    except Exception:
        return None
    try:
        found = delegatekit.explain(program, backends=[context.backend], options=context.by_backend)
    except Exception as error:
        raise _Failed(recipe) from error
    taken = sum(row.backend == context.backend for row in found.rows)
    reasons = (row.reasons.get(context.backend, "") for row in (*found.decomposed, *found.rows))
    return _Answer(taken, tuple(dict.fromkeys(filter(None, reasons))))


def _extremes(operator: str) -> Extremes:
    return load_extremes()[operator]


def cases() -> Iterator[Case]:
    """All operators that have a strategy."""
    yield from map(LimitCase, load_extremes())
