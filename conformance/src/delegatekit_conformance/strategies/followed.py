"""A recipe whose results are read by one more operator, so that partitions have more than one."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..recipe import Recipe, Ref, Step

#: Operators of nearly every backend with their further arguments: exact for all ordinary numbers. A compiler may join
#: an operator with what follows; a negation and a multiplication are two of these.
_FOLLOWERS: tuple[tuple[str, tuple[Any, ...]], ...] = (("aten.neg.default", ()), ("aten.mul.Scalar", (2.0,)))
#: Numbers up to this one are ordinary in every floating-point type.
_MOST = 1e4


def followed(recipe: Recipe) -> Recipe:
    """The recipe with the negation or double of each floating-point result of ordinary numbers; itself if none is.

    A backend takes an operator that only moves elements (a passenger) together with others, so it shows nothing by
    itself. The result of other numbers depends on the other operator, too.
    """
    steps, outputs = list(recipe.steps), []
    target, arguments = _FOLLOWERS[zlib.crc32(recipe.describe().encode()) % len(_FOLLOWERS)]
    for number, (ref, result) in enumerate(zip(recipe.outputs, _results(recipe), strict=False)):
        if not _is_ordinary(result):
            outputs.append(ref)
            continue
        steps.append(Step(f"n{number}", target, (ref, *arguments)))
        outputs.append(Ref(f"n{number}"))
    return replace(recipe, steps=tuple(steps), outputs=(*outputs, *recipe.outputs[len(outputs) :]))


def _is_ordinary(result: Any) -> bool:
    """True if it is a tensor of floating-point numbers that every such type holds."""
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return False
    return bool((result.abs() <= _MOST).all())


def _results(recipe: Recipe) -> Sequence[Any]:
    """The outputs in eager; none if it does not compute them."""
    try:
        with torch.no_grad():
            results = recipe.module()(*recipe.inputs())
    except Exception:  # an operator may raise anything
        return ()
    return (results,) if len(recipe.outputs) == 1 else results
