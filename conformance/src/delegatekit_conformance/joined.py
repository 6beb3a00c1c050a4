"""Several recipes as one program: the cost of export, lowering and loading is paid once for all of them.

The parts share nothing but the program, so each is judged by its own accuracy. A fault that occurs only in company (two
calls of one operator that a compiler mistakes for the same) occurs here and in no part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .recipe import Recipe, Ref, Step


@dataclass(frozen=True)
class Joined:
    """A program of several recipes, none of which has sizes that change."""

    parts: tuple[Recipe, ...]

    @cached_property
    def whole(self) -> Recipe:
        """One recipe with the tensors, steps and outputs of all parts, in their order; its accuracy is the loosest."""
        renamed = [_renamed(part, f"p{number}_") for number, part in enumerate(self.parts)]
        return Recipe(
            tuple(item for part in renamed for item in part.tensors),
            tuple(step for part in renamed for step in part.steps),
            tuple(ref for part in renamed for ref in part.outputs),
            reduction_length=max(part.reduction_length for part in renamed),
            depth=max(part.depth for part in renamed),
            exact=all(part.exact for part in renamed),
            ill_conditioned=any(part.ill_conditioned for part in renamed),
        )

    @property
    def has_elements(self) -> bool:
        """True if there are inputs, and no tensor is empty."""
        return self.whole.has_elements

    def describe(self) -> str:
        """One line: the calls of all parts with the shapes of their operands."""
        return "; ".join(part.describe() for part in self.parts)

    def snippet(self, backend: str) -> str:
        """A Python script that shows the same with nothing but torch and DelegateKit."""
        return self.whole.snippet(backend)


def join(recipes: Sequence[Recipe], size: int) -> Iterator[Joined]:
    """Programs of up to `size` recipes each, in their order. Recipes whose sizes change are left out."""
    able = [recipe for recipe in recipes if not recipe.sizes and not recipe.calls]
    for start in range(0, len(able), size):
        yield Joined(tuple(able[start : start + size]))


def _renamed(recipe: Recipe, prefix: str) -> Recipe:
    names = {name: f"{prefix}{name}" for name in (*dict(recipe.tensors), *(step.name for step in recipe.steps))}
    return replace(
        recipe,
        tensors=tuple((names[name], tensor) for name, tensor in recipe.tensors),
        steps=tuple(_renamed_step(step, names) for step in recipe.steps),
        outputs=tuple(_renamed_value(ref, names) for ref in recipe.outputs),
    )


def _renamed_step(step: Step, names: Mapping[str, str]) -> Step:
    kwargs = tuple((key, _renamed_value(value, names)) for key, value in step.kwargs)
    return replace(step, name=names[step.name], args=_renamed_value(step.args, names), kwargs=kwargs)


def _renamed_value(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Ref):
        return replace(value, name=names[value.name])
    if isinstance(value, tuple):
        return tuple(_renamed_value(item, names) for item in value)
    return value
