"""The diversity of recipes: the selection that differs most in the forms of operator calls.

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
#: Weight of a new form relative to a new pair of forms.
_SINGLE = 8
#: Bits that hold the number of a form.
_BITS = 24
#: Numbers up to this one are distinguished from one another.
_SMALL = 3


def most_diverse(recipes: Sequence[T], count: int, *, known: Iterable[Recipe] = ()) -> list[T]:
    """Up to `count` of the recipes, each with the most forms and pairs of forms that none before it nor `known` has.

    Recipes without elements come last: nothing is computed in them.
    """
    numbers: dict[Hashable, int] = {}
    forms: set[int] = set()
    pairs: set[int] = set()
    for recipe in known:
        its = _marks(recipe, numbers)
        forms |= its[0]
        pairs |= its[1]
    left = [(recipe, recipe.has_elements, *_marks(recipe, numbers)) for recipe in recipes]
    chosen: list[T] = []
    while left and len(chosen) < count:
        worth = [(full, _SINGLE * len(ones - forms) + len(twos - pairs)) for _, full, ones, twos in left]
        recipe, _, ones, twos = left.pop(max(range(len(left)), key=worth.__getitem__))
        forms |= ones
        pairs |= twos
        chosen.append(recipe)
    return chosen


def _marks(recipe: Recipe, numbers: dict[Hashable, int]) -> tuple[set[int], set[int]]:
    """The forms of a recipe's calls, and all pairs of forms of one call.

    `numbers` are those of the forms so far: pairs of numbers are compared many times faster than the forms themselves.
    """
    tensors = dict(recipe.tensors)
    found: tuple[set[int], set[int]] = set(), set()
    for step in recipe.steps:
        arguments = [*enumerate(step.args), *step.kwargs]
        forms: set[Hashable] = {
            (step.target, place, form) for place, value in arguments for form in _forms(value, tensors)
        }
        forms |= {(step.target, "operands", form) for form in _relations(step.references(), tensors)}
        ones = sorted(numbers.setdefault(form, len(numbers)) for form in forms)
        found[0].update(ones)
        found[1].update(one << _BITS | other for one, other in combinations(ones, 2))
    return found


def _forms(value: Any, tensors: Mapping[str, TensorRecipe]) -> Iterator[Hashable]:
    """Properties of an argument's value that a compiler might distinguish."""
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
    """Differences of the operands of a call from the first of them."""
    operands = [tensors[ref.name] for ref in references if ref.name in tensors]
    for place, operand in enumerate(operands[1:], 1):
        first = operands[0]
        yield (place, "rank", len(operand.shape) - len(first.shape))
        yield (place, "same shape", operand.shape == first.shape)
        yield (place, "dtype", operand.dtype == first.dtype)
