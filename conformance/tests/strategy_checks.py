"""Properties of every operator's strategy; the tests of each family call these."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterable, Sequence
from types import ModuleType

import torch

from delegatekit_conformance.drawing import draw, shrink
from delegatekit_conformance.recipe import Recipe
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.trial import Subject, flatten
from delegatekit_toolkit.accuracy import compare

#: Elements that the smallest example may have, all its tensors together.
_SMALL = 64


def operators_of(*modules: ModuleType) -> list[str]:
    """The operators whose strategies are defined in these modules."""
    files = {module.__file__ for module in modules}
    return [
        name
        for name, entry in load_operators().items()
        if inspect.getsourcefile(inspect.getclosurevars(entry.draw).nonlocals["function"]) in files
    ]


@functools.cache
def drawn(name: str, dtype: str | None = None, count: int = 12) -> Sequence[Recipe]:
    """Some examples of an operator; without `dtype`, of its first one."""
    entry = load_operators()[name]
    return draw(entry.recipes(dtype or entry.dtypes[0]), count, 0)


def check_eager(recipe: Recipe) -> None:
    """Eager itself passes the oracle: the example is well determined, and its accuracy is declared truthfully."""
    subject = Subject.of_recipe(recipe)
    with torch.no_grad():
        results = flatten(subject.module(*subject.calls[0]))
    ((references, native, moved),) = list(subject.references(2.0**-24))[:1]
    compared = compare(results, references, native, "float32", subject.accuracy, moved)
    assert compared.agrees, f"{recipe.describe()}: eager's {compared.difference}"


def check_exports(recipe: Recipe) -> None:
    """torch.export takes the example."""
    recipe.export()


def check_operator(name: str, *, first: int = 8, others: int = 2, exported: int = 1) -> None:
    """All of the above for an operator: `first` examples of its first dtype, `others` of each other one.

    Only the last `exported` examples of the first dtype are exported: that takes most of the time.
    """
    entry = load_operators()[name]
    for dtype in entry.dtypes:
        is_first = dtype == entry.dtypes[0]
        examples = drawn(name, dtype, first if is_first else others)
        assert examples, f"{name} has no examples in {dtype}"
        for recipe in examples:
            assert name in {step.target for step in recipe.steps}, f"{recipe.describe()} does not call {name}"
            check_eager(recipe)
        for recipe in examples[len(examples) - exported :] if is_first else ():
            check_exports(recipe)


def check_shrinks(name: str, *, count: int = 4) -> None:
    """Any failing example shrinks to a small one."""
    entry = load_operators()[name]
    strategy = entry.recipes(entry.dtypes[0])
    examples = draw(strategy, count, 0)
    smallest = shrink(strategy, count, 0, examples[-1], lambda recipe: True)
    assert elements(smallest) <= _SMALL, smallest.describe()


def elements(recipe: Recipe) -> int:
    """The elements of all tensors of a recipe."""
    return sum(math.prod(tensor.shape) for _, tensor in recipe.tensors)


def ranks(recipes: Iterable[Recipe]) -> set[int]:
    """The ranks of all tensors."""
    return {len(tensor.shape) for recipe in recipes for _, tensor in recipe.tensors}


def layouts(recipes: Iterable[Recipe]) -> set[str]:
    """The layouts of all tensors."""
    return {tensor.layout for recipe in recipes for _, tensor in recipe.tensors}


def has_empty(recipes: Iterable[Recipe]) -> bool:
    """True if some tensor has no elements."""
    return any(0 in tensor.shape for recipe in recipes for _, tensor in recipe.tensors)


def has_special(recipes: Iterable[Recipe]) -> bool:
    """True if some input holds NaN."""
    return any(bool(value.isnan().any()) for recipe in recipes for value in recipe.inputs())


def arguments(recipes: Iterable[Recipe], name: str, position: int | str) -> set[object]:
    """The arguments that calls of an operator get at a position or under a name; those left out are missing."""
    found: set[object] = set()
    for recipe in recipes:
        for step in recipe.steps:
            if step.target != name:
                continue
            if isinstance(position, str):
                found.update(value for key, value in step.kwargs if key == position)
            elif len(step.args) > position:
                found.add(step.args[position])
    return found
