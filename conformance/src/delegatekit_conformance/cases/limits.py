"""Limits: the largest size of an operator that the backend takes, found by bisection, and examples there.

A backend's limits are only in its code, and no example drawn at random meets them: a limit that is
one too large gives a compiler's error or wrong numbers, for one size of thousands. The last size that is taken must
be right, and the report lists each limit with the backend's reason, so that a comparison of two runs reports one that
has moved. Only the partitioner is asked on the way: nothing is compiled but the last example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest

import torch
from torch import nn

import delegatekit

from ..context import Context
from ..joined import Joined
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..strategies.extremes import Extremes, load_extremes
from ..strategies.extremes.determined import is_determined, takes_long
from ..trial import try_recipe
from .base import Case
from .quantized import quantized_by
from .quantized_operators import Quantized, is_plain, schemes_for, try_program

#: The largest size queried: above the 65,536 and the 16,384 of many devices.
_MOST = 1 << 18
#: Eager computes this many products in seconds, in double precision and one by one.
_WORK = 1 << 26
#: The size that must be taken, so that there is a limit above it.
_LEAST = 2
#: Number of sizes of an operator tried in each profile; each is another dimension of another example.
_SIZES = {"quick": 0, "default": 4}
_MORE_SIZES = 12
#: The dtype that is quantized.
_QUANTIZED = "float32"
#: Number of them that show whether the backend takes the operator at all.
_FIRST = 2
#: Number of examples searched for ones that have a size.
_SOUGHT = 24


@dataclass(frozen=True)
class Lever:
    """One size of an example of an operator."""

    operator: str
    dtype: str
    #: Number of the example, and of its size.
    number: int
    #: The scheme that the example is quantized by, and whether its inputs are sums; none if it is not.
    scheme: str = ""
    led: bool = False

    def describe(self) -> str:
        """One line."""
        kind = f"{self.operator} of {self.dtype}{f' by {self.scheme}' if self.scheme else ''}"
        return f"{kind}: size {self.number} as large as the backend takes it"

    def recipe(self, size: int) -> Recipe | None:
        """The example with this size; None if it has none."""
        return _extremes(self.operator).sized(self.dtype, self.number, size)

    def quantized(self, recipe: Recipe) -> Quantized:
        """The example as a program that is quantized."""
        return Quantized(self.scheme, Joined((recipe,)), self.led)


@dataclass(frozen=True)
class _Answer:
    """A partitioner's answer about an example."""

    taken: int
    reasons: tuple[str, ...]


class _Failed(Exception):  # noqa: N818  it ends a search
    """Raised with an example that cannot be asked about: a trial of it decides whose fault that is."""

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
        """True if the backend leaves the first examples at any size."""
        return all(outcome.verdict is Verdict.NOT_APPLICABLE for outcome in tried)

    def _levers(self, context: Context) -> Sequence[Lever]:
        """The plain ones, and for operators that schemes name half as many by the first scheme."""
        count = _SIZES.get(context.profile.name, _MORE_SIZES)
        first = Lever(self._operator, _extremes(self._operator).dtypes[0], 0)
        found = [islice(filter(_has_size, _numbered(first)), count)]
        if count and first.dtype == _QUANTIZED:
            for scheme, led in schemes_for(context, self._operator)[:1]:
                quantized = replace(first, scheme=scheme.name, led=led)
                found.append(islice(filter(_has_size, _numbered(quantized)), count // 2))
        return [lever for levers in zip_longest(*found) for lever in levers if lever is not None]

    def run(self, example: Lever, context: Context) -> Outcome:
        """Find the limit, and try the example just below it."""
        try:
            outcome = _sought(example, context)
        except _Failed as failed:
            outcome = _tried(example, failed.recipe, context)
        # A fault is that of one size, with the words and the script of the example that has it.
        return outcome if outcome.verdict.is_fault else replace(outcome, example=example.describe())


def _numbered(lever: Lever) -> Iterator[Lever]:
    return (replace(lever, number=number) for number in range(_SOUGHT))


def _has_size(lever: Lever) -> bool:
    recipe = lever.recipe(_LEAST)
    return recipe is not None and (not lever.scheme or is_plain(recipe))


def _sought(example: Lever, context: Context) -> Outcome:
    """The outcome of the last example that is taken. Raises _Failed if the backend cannot be asked about one."""
    answers: dict[int, _Answer | None] = {}

    def answer(size: int) -> _Answer | None:
        if size not in answers:
            answers[size] = _asked(example, example.recipe(size), context)
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
    return replace(_at(example, low, context), refusals=told)


def _at(example: Lever, size: int, context: Context) -> Outcome:
    """The outcome of the last example that is taken."""
    recipe = example.recipe(size)
    if recipe is None or takes_long(recipe, _WORK):
        return Outcome(Verdict.PASSED, f"{size} is taken: an example of that size takes too long to compare")
    if not example.scheme and not is_determined(recipe):
        return Outcome(Verdict.PASSED, f"{size} is taken: an example of that size has no determined result")
    return _tried(example, recipe, context)


def _tried(example: Lever, recipe: Recipe, context: Context) -> Outcome:
    if example.scheme:
        return try_program(example.quantized(recipe), f"limits/{example.operator}", context)
    outcome = try_recipe(recipe, context)
    return replace(outcome, snippet=recipe.snippet(context.backend)) if outcome.verdict.is_fault else outcome


def _asked(example: Lever, recipe: Recipe | None, context: Context) -> _Answer | None:
    """The backend's answer about a recipe; None if there is none, or eager refuses it or takes too long."""
    if recipe is None:
        return None
    try:
        if not example.scheme:
            program = recipe.export()
        elif takes_long(recipe, _WORK):
            return None  # quantizing runs it, several times
        else:
            module = _quantized(example, recipe, context)
            if isinstance(module, Outcome):
                return _Answer(0, (module.detail,))
            program = torch.export.export(module, recipe.inputs(), strict=False)
    except Exception:
        return None
    try:
        found = delegatekit.explain(program, backends=[context.backend], options=context.by_backend)
    except Exception as error:
        raise _Failed(recipe) from error
    taken = sum(row.backend == context.backend for row in found.rows)
    reasons = (row.reasons.get(context.backend, "") for row in (*found.decomposed, *found.rows))
    return _Answer(taken, tuple(dict.fromkeys(filter(None, reasons))))


def _quantized(example: Lever, recipe: Recipe, context: Context) -> nn.Module | Outcome:
    module = example.quantized(recipe).module_of(recipe)
    found: nn.Module | Outcome = quantized_by(example.scheme, module, recipe.inputs(), context)
    return found


def _extremes(operator: str) -> Extremes:
    return load_extremes()[operator]


def cases() -> Iterator[Case]:
    """All operators that have a strategy."""
    yield from map(LimitCase, load_extremes())
