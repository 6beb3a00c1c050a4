"""The diversity of recipes: which of many differ most in how they call their operators.

Compilers branch on the form of a call: an argument that is left out, a flag, the sign of a dimension, a stride above
one, an operand that is broadcast. Two forms together reach a branch that each alone does not, so pairs count, too.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

from .recipe import Recipe, Ref, TensorRecipe

T = TypeVar("T", bound=Recipe)

#: A row of this many elements is long: longer than vector registers.
_LONG = 16
#: What a form that is new counts beside a pair of forms that is.
_SINGLE = 8
#: Small numbers are told from one another up to this one.
_SMALL = 3


def most_diverse(recipes: Sequence[T], count: int, *, known: Iterable[Recipe] = ()) -> list[T]:
    """Up to `count` of the recipes, each with the most forms and pairs of forms that none before it nor `known` has.

    Recipes without elements come last: nothing is computed in them.
    """
    seen: set[Hashable] = set()
    for recipe in known:
        seen.update(_marks(recipe))
    left = [(recipe, _marks(recipe)) for recipe in recipes]
    chosen: list[T] = []
    while left and len(chosen) < count:
        worth = [
            (recipe.has_elements, sum(_SINGLE if mark[0] == "form" else 1 for mark in marks - seen))
            for recipe, marks in left
        ]
        best = max(range(len(left)), key=worth.__getitem__)
        recipe, marks = left.pop(best)
        seen |= marks
        chosen.append(recipe)
    return chosen


def _marks(recipe: Recipe) -> set[tuple[Any, ...]]:
    """The forms of a recipe's calls, and all pairs of forms of one call."""
    tensors = dict(recipe.tensors)
    marks: set[tuple[Any, ...]] = set()
    for step in recipe.steps:
        arguments = [*enumerate(step.args), *step.kwargs]
        forms = sorted(
            {(step.target, place, form) for place, value in arguments for form in _forms(value, tensors)}, key=repr
        )
        forms += [(step.target, "operands", form) for form in _relations(step.references(), tensors)]
        marks.update(("form", form) for form in forms)
        marks.update(("pair", one, other) for one, other in combinations(forms, 2))
    return marks


def _forms(value: Any, tensors: Mapping[str, TensorRecipe]) -> Iterator[Hashable]:
    """What a compiler might tell from other values of the same argument."""
    if isinstance(value, Ref):
        yield from _forms_of_tensor(tensors.get(value.name))
    elif isinstance(value, bool) or value is None or isinstance(value, str):
        yield value
    elif isinstance(value, int | float):
        yield _number(value)
    elif isinstance(value, tuple):
        yield ("items", min(len(value), 6))
        yield ("equal", len(set(map(repr, value))) <= 1)
        for place, item in enumerate(value[:6]):
            for form in _forms(item, tensors):
                yield (place, form)
    else:
        yield str(value)


def _number(value: float) -> Hashable:
    if not math.isfinite(value):
        return repr(value)
    if isinstance(value, float) and not value.is_integer():
        return ("fraction", value > 0, abs(value) > 1)
    return (type(value).__name__, max(-_SMALL, min(_SMALL, int(value))))


def _forms_of_tensor(tensor: TensorRecipe | None) -> Iterator[Hashable]:
    if tensor is None:
        return
    yield ("rank", len(tensor.shape))
    yield ("dtype", tensor.dtype)
    yield ("values", tensor.values[0])
    yield ("layout", tensor.layout)
    yield ("constant", tensor.constant)
    yield ("ones", tuple(size == 1 for size in tensor.shape))
    yield ("empty", 0 in tensor.shape)
    yield ("long", max(tensor.shape, default=0) > _LONG)
    yield ("even", len(set(tensor.shape)) <= 1)


def _relations(references: Iterable[Ref], tensors: Mapping[str, TensorRecipe]) -> Iterator[Hashable]:
    """How the operands of a call differ from the first of them."""
    operands = [tensors[ref.name] for ref in references if ref.name in tensors]
    for place, operand in enumerate(operands[1:], 1):
        first = operands[0]
        yield (place, "rank", len(operand.shape) - len(first.shape))
        yield (place, "same shape", operand.shape == first.shape)
        yield (place, "dtype", operand.dtype == first.dtype)
