"""The check that an example's answer is determined by its inputs, as far as its accuracy facts say.

Extreme sizes and numbers may take an example out of the range for which its strategy declares its facts: sums that
cancel out, functions at their poles, numbers beyond their type. Eager decides, so that no sound backend is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from delegatekit_toolkit.accuracy import ROUNDOFF, Comparison, compare, shaken, widened

from ...recipe import Recipe
from ..registry import load_operators
from .sketch import RANK

#: The part of the tolerance that eager's own error may take.
_SHARE = 0.5
#: Products that eager computes in less than a second.
_WORK = 1 << 28
#: No example has many more results: with fewer products for each than this allows, they need not be counted.
_RESULTS = 1 << 20
#: Families of operators that compute each result from its window, row or column by itself.
_ANEW = frozenset({"attention", "convolutions", "linear", "pooling"})
#: Beside a largest result below this one, the roundings of numbers near the end of float16's range are large.
_SMALLEST_HALF = 2.0**-7


def is_determined(recipe: Recipe) -> bool:
    """True if eager agrees with its double precision, and a rounding of the inputs changes no more than allowed.

    Half precision is judged by float32 results of the same numbers: eager's own kernels round in between.
    """
    try:
        with torch.no_grad():
            return all(_agrees(recipe, recipe.inputs(sizes)) for sizes in (None, *recipe.calls))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return False  # eager refuses the example


def takes_long(recipe: Recipe, most: int = _WORK) -> bool:
    """True if eager computes more than this many products for it: a large window at each of many places.

    Of a row that is normalized, summed up or sorted each element is read a few times, for any length of the row.
    """
    length = recipe.accuracy.reduction_length
    if length * _RESULTS <= most or not any(_family(step.target) in _ANEW for step in recipe.steps):
        return False
    try:
        with torch.no_grad():
            results = _results(recipe.module().to("meta"), [value.to("meta") for value in recipe.inputs()])
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return False  # without shapes from PyTorch nothing is known
    return length * sum(value.numel() for value in results) > most


def _family(operator: str) -> str:
    found = load_operators().get(operator)
    return "" if found is None else found.family


def is_determined_in(precision: str, recipe: Recipe) -> bool:
    """True if eager, all of it in this precision, is within the tolerance of a backend that computes in it.

    Numbers beyond the range of float16 are infinite there, and far ones lose their digits: no such backend is blamed.
    """
    dtype = getattr(torch, precision)
    accuracy = recipe.accuracy
    try:
        with torch.no_grad():
            for sizes in (None, *recipe.calls):
                inputs = recipe.inputs(sizes)
                native, wide = _results(recipe.module(), inputs), recipe.module().double()
                double = [widened(value) for value in inputs]
                exact = _results(wide, double)
                moved = _results(wide, [shaken(value, ROUNDOFF[precision]) for value in double])
                narrow = [value.to(dtype) if value.is_floating_point() else value for value in inputs]
                results = _results(recipe.module().to(dtype), narrow)
                computed = [value.to(like.dtype) for value, like in zip(results, native, strict=True)]
                slack = moved if recipe.ill_conditioned else None
                found = compare(computed, exact, native, precision, accuracy, slack)
                if not _is_close(found):
                    return False
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return False  # eager has no such kernel
    return True


def _agrees(recipe: Recipe, inputs: Sequence[torch.Tensor]) -> bool:
    native = _results(recipe.module(), inputs)
    if any(value.dim() > RANK for value in native):
        return False
    wide = recipe.module().double()
    double = [widened(value) for value in inputs]
    exact = _results(wide, double)
    accuracy = recipe.accuracy
    if any(value.is_floating_point() and value.numel() and not value.isfinite().any() for value in exact):
        return False  # there is nothing to compare
    if recipe.exact:
        return compare(native, exact, native, "float32", accuracy).agrees
    half = {value.dtype for value in native} & {torch.float16, torch.bfloat16}
    if half and not _in_range_of_half(exact):
        return False
    plain = _results(recipe.module().float(), [_single(value) for value in inputs]) if half else native
    computed = [value.to(like.dtype) for value, like in zip(plain, native, strict=True)]
    moved = _results(wide, [shaken(value, _roundoff(native)) for value in double])
    slack = moved if recipe.ill_conditioned else None
    found = compare(computed, exact, native, "float32", accuracy, slack)
    if not _is_close(found):
        return False
    rounded = [value.to(like.dtype) for value, like in zip(moved, native, strict=True)]
    return recipe.ill_conditioned or compare(rounded, exact, native, "float32", accuracy).agrees


def _is_close(found: Comparison) -> bool:
    """True if eager's own error leaves a backend its part of the tolerance."""
    return found.agrees and (found.error or 0.0) <= _SHARE * (found.tolerance or 0.0)


def _in_range_of_half(values: Sequence[torch.Tensor]) -> bool:
    """True if results are all zero, or the largest finite one is far above the smallest numbers of float16."""
    floats = [value[value.isfinite()].abs() for value in values if value.is_floating_point() and value.numel()]
    return all(not value.numel() or float(value.max()) == 0 or float(value.max()) > _SMALLEST_HALF for value in floats)


def _roundoff(native: Sequence[torch.Tensor]) -> float:
    names = [str(value.dtype).removeprefix("torch.") for value in native]
    return max([ROUNDOFF["float32"], *(ROUNDOFF[name] for name in names if name in ROUNDOFF)])


def _single(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


def _results(module: nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    copies = [value.clone() for value in inputs]
    return [value for value in torch.utils._pytree.tree_leaves(module(*copies)) if isinstance(value, torch.Tensor)]
