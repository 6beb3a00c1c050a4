"""Sizes that change from call to call, up to thousands, with a largest bound far above all calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...recipe import Recipe, Size

#: The largest bound; the calls stay far below.
_BOUND = 32768
#: Sizes of the further calls: above the first call's, small, and above again.
_CALLS = ((2049,), (3,), (1031,))


def changing(recipe: Recipe, places: Mapping[str, int]) -> Recipe:
    """The recipe with a size that changes, in one dimension of each of these inputs."""
    return replace(recipe, sizes=(Size("n", 2, _BOUND, tuple(places.items())),), calls=_CALLS)


def pointwise_changing(recipe: Recipe, size: int) -> Recipe | None:
    """An elementwise recipe whose long size changes; None if that is in no input's shape, or in a constant's.

    Shapes broadcast from the last dimension, so the size stands in one place counted from there.
    """
    tensors = [(name, tensor) for name, tensor in recipe.tensors if size in tensor.shape]
    behind = {len(tensor.shape) - tensor.shape.index(size) for _, tensor in tensors}
    if len(behind) != 1 or any(tensor.constant or tensor.values[0] == "literal" for _, tensor in tensors):
        return None
    (place,) = behind
    contiguous = [
        (name, replace(tensor, layout="contiguous") if size in tensor.shape else tensor)
        for name, tensor in recipe.tensors
    ]
    return changing(
        replace(recipe, tensors=tuple(contiguous)), {name: len(tensor.shape) - place for name, tensor in tensors}
    )
