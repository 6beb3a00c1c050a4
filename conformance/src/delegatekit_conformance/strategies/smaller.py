"""Smaller graphs for one that fails: one result alone, and values in the middle that become inputs.

Hypothesis would leave out one drawn number after the other; each try is a whole trial, and there is time for a hundred.
Here, most tries halve the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from ..recipe import Recipe, Ref, Step, TensorRecipe, find_target
from .graphs import enlarged

#: Values with up to this many elements are kept as they are where they become inputs.
_LITERAL = 48


def shrink_graph(recipe: Recipe, fails: Callable[[Recipe], bool]) -> Recipe:
    """The smallest graph found for which `fails` is true; its exceptions end the search with the best so far."""
    try:
        found = True
        while found:
            found = False
            for candidate in _candidates(recipe):
                if fails(candidate):
                    recipe, found = candidate, True
                    break
    except Exception:
        return recipe
    return recipe


def _candidates(recipe: Recipe) -> Iterator[Recipe]:
    """Graphs with fewer steps, or with as many and fewer results: the smallest first."""
    found = {repr(one): one for one in (*_with_one_result(recipe), *_cut(recipe)) if _size(one) < _size(recipe)}
    for candidate in sorted(found.values(), key=_size):
        if _is_sound(candidate):
            yield candidate


def _size(recipe: Recipe) -> tuple[int, int, int]:
    return len(recipe.steps), len(recipe.outputs), len(recipe.tensors)


def _with_one_result(recipe: Recipe) -> Iterator[Recipe]:
    """Each result alone, and each value that a step makes as the only result."""
    used = {ref for step in recipe.steps for ref in step.references()}
    made = [ref for ref in used if any(step.name == ref.name for step in recipe.steps)]
    for ref in dict.fromkeys((*recipe.outputs, *sorted(made, key=str))):
        yield _pruned(replace(recipe, outputs=(ref,)))


def _cut(recipe: Recipe) -> Iterator[Recipe]:
    """For each step, the graph in which the step's results are inputs instead."""
    values = _values(recipe)
    for step in recipe.steps:
        refs = {ref for other in recipe.steps for ref in other.references() if ref.name == step.name}
        given = {ref: values[ref.name] if ref.index is None else values[ref.name][ref.index] for ref in refs}
        if not given or not all(isinstance(value, torch.Tensor) for value in given.values()):
            continue
        for literal in (False, True):
            inputs = {ref: _input(value, literal) for ref, value in given.items()}
            if all(inputs.values()):
                yield _replaced(recipe, step, inputs)  # type: ignore[arg-type]


def _input(value: torch.Tensor, literal: bool) -> TensorRecipe | None:
    dtype = str(value.dtype).removeprefix("torch.")
    if literal:
        if value.numel() > _LITERAL:
            return None
        return TensorRecipe(tuple(value.shape), dtype, ("literal", tuple(value.flatten().tolist())))
    return TensorRecipe(tuple(value.shape), dtype, ("normal",) if value.is_floating_point() else ("integers", 0, 1))


def _replaced(recipe: Recipe, step: Step, inputs: dict[Ref, TensorRecipe]) -> Recipe:
    names = {ref: Ref(f"x{len(recipe.tensors) + number}") for number, ref in enumerate(inputs)}
    taken = {name for name, _ in recipe.tensors}
    if taken & {ref.name for ref in names.values()}:
        names = {ref: Ref(f"{step.name}_{number}") for number, ref in enumerate(inputs)}

    def renamed(value: Any) -> Any:
        if isinstance(value, Ref):
            return names.get(value, value)
        return tuple(map(renamed, value)) if isinstance(value, tuple) else value

    steps = tuple(
        replace(one, args=renamed(one.args), kwargs=tuple((key, renamed(value)) for key, value in one.kwargs))
        for one in recipe.steps
        if one is not step
    )
    outputs = tuple(ref for ref in recipe.outputs if ref.name != step.name)
    tensors = (*recipe.tensors, *((names[ref].name, tensor) for ref, tensor in inputs.items()))
    return _pruned(replace(recipe, tensors=tensors, steps=steps, outputs=outputs))


def _pruned(recipe: Recipe) -> Recipe:
    """Without steps and tensors that no result needs."""
    needed = {ref.name for ref in recipe.outputs}
    steps: list[Step] = []
    for step in reversed(recipe.steps):
        if step.name in needed:
            steps.insert(0, step)
            needed.update(ref.name for ref in step.references())
    tensors = tuple((name, tensor) for name, tensor in recipe.tensors if name in needed)
    return replace(recipe, tensors=tensors, steps=tuple(steps))


def _is_sound(recipe: Recipe) -> bool:
    """True if the graph computes something, and the tolerance of the first one holds for it, too."""
    if not recipe.steps or not recipe.outputs:
        return False
    try:
        return all(by <= recipe.depth for by in enlarged(recipe))
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False


def _values(recipe: Recipe) -> dict[str, Any]:
    """The value of every tensor and step in eager, for the example inputs."""
    values: dict[str, Any] = {name: tensor.make() for name, tensor in recipe.tensors}

    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            return values[value.name] if value.index is None else values[value.name][value.index]
        return [resolve(item) for item in value] if isinstance(value, tuple) else value

    with torch.no_grad():
        for step in recipe.steps:
            named = {key: resolve(value) for key, value in step.kwargs}
            values[step.name] = find_target(step.target)(*map(resolve, step.args), **named)
    return values
