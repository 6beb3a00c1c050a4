"""Sizes that vary: an ordinary recipe whose sizes change from call to call, as many at once as possible."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch

from ..recipe import Recipe, Ref, Size

#: Bounds lie this far above the sizes of the calls.
_FAR = 5
#: Ways to let sizes vary that are tried before the recipe counts as one with fixed sizes.
_ATTEMPTS = 3


def varying(recipe: Recipe) -> Recipe | None:
    """The recipe with sizes that change: grown by one, the smallest, and as drawn. None if none of them may change.

    Equal sizes of the inputs change together. Those that are also numbers in a call are left: a program that has its
    sizes written out cannot be exported for others.
    """
    if recipe.sizes or recipe.calls or not recipe.has_elements:
        return None
    for sizes in islice(_ways(recipe), _ATTEMPTS):
        drawn = [_drawn(recipe, size) for size in sizes]
        calls = (tuple(size + 1 for size in drawn), (2,) * len(drawn), tuple(drawn))
        longest = recipe.reduction_length
        for size in drawn:
            longest += -(-longest // size)
        found = replace(recipe, sizes=sizes, calls=calls, reduction_length=longest)
        if _works(found):
            return found
    return None


def _ways(recipe: Recipe) -> Iterator[tuple[Size, ...]]:
    """All sizes that may change at once, and then each by itself."""
    written = {number for step in recipe.steps for number in _numbers((step.args, step.kwargs))}
    places: dict[int, list[tuple[str, int]]] = {}
    for name, tensor in recipe.tensors:
        for dim, size in enumerate(tensor.shape):
            places.setdefault(size, []).append((name, dim))
    of_constants = {size for _, tensor in recipe.tensors if tensor.constant for size in tensor.shape}
    fixed = {size for _, tensor in recipe.tensors if tensor.values[0] == "literal" for size in tensor.shape}
    free = [size for size in places if size >= 2 and size not in written | of_constants | fixed]
    sizes = tuple(Size(f"n{size}", 2, _FAR * size, tuple(places[size])) for size in free)
    if sizes:
        yield sizes
    if len(sizes) > 1:
        yield from ((size,) for size in sizes)


def _numbers(value: object) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, tuple) and not isinstance(value, Ref):
        for item in value:
            yield from _numbers(item)


def _drawn(recipe: Recipe, size: Size) -> int:
    name, dim = size.places[0]
    return dict(recipe.tensors)[name].shape[dim]


def _works(recipe: Recipe) -> bool:
    """True if eager computes all calls, and torch.export accepts the sizes as dynamic."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sizes in recipe.calls:
                recipe.module()(*recipe.inputs(sizes))
            recipe.program  # noqa: B018  it is there, then, for the trial
    except Exception:  # an operator or torch.export may raise anything for unsupported sizes
        return False
    return True
