"""Constraints of operators that are composed of several of XNNPACK's nodes: where the composition is exact.

Each says in words why it refuses a node, or None (see `support`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from delegatekit_api import Constraint, ProgramView

from .arguments import argument, axis_of, shape_of
from .lowering import elementwise, steps
from .lowering.shape import flipped_axes, index_runs, indices_of_axes, slice_bounds
from .sizes import Dynamic, dynamic_count, smallest

if TYPE_CHECKING:
    from torch.fx import Node

#: Slices that a selection may be cut into: two levels of concatenation.
RUN_LIMIT = 25


# -- numbers ---------------------------------------------------------------------------------------------------------


def finite_numbers(*names: str) -> Constraint:
    """Constraint: the named arguments are finite in float32."""

    def check(node: Node, program: ProgramView) -> str | None:
        for name in names:
            value = argument(node, name)
            if not isinstance(value, int | float) or not abs(value) <= torch.finfo(torch.float32).max:
                return f"{name} = {value} is not a finite float32 number"
        return None

    check.__doc__ = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} finite."
    return check


def positive_number(name: str) -> Constraint:
    """Constraint: an argument is a positive normal float32 number, or infinite."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        limits = torch.finfo(torch.float32)
        if isinstance(value, int | float) and limits.tiny <= value <= limits.max:
            return None
        return f"{name} = {value} is not a positive float32 number"

    check.__doc__ = f"{name} is positive."
    return check


def late_threshold(node: Node, program: ProgramView) -> str | None:
    """The threshold is 17 or more: from there on, float32 has no difference between x and softplus(x)."""
    threshold = argument(node, "threshold")
    return None if threshold >= 17 else f"threshold = {threshold}: XNNPACK's nodes compute no threshold below 17"


def short_divisors(node: Node, program: ProgramView) -> str | None:
    """Rounded down, the divisors are constants of few binary digits: then quotients are never rounded up to a whole."""
    if argument(node, "rounding_mode") != "floor":
        return None
    divisors = steps.divisors(node, program)
    if divisors is None:
        return "other is computed: its quotients may be rounded up to the next whole number"
    bits = steps.significant_bits(divisors)
    return None if bits <= _SHORT else f"other has {bits} binary digits: quotients may be rounded up to a whole number"


#: With so many digits, products with whole numbers to 2^21 are exact; beyond, one more or less is within rounding.
_SHORT = 3


def powers_of_two(node: Node, program: ProgramView) -> str | None:
    """The divisors are constants, powers of two from 1 on: no step rounds."""
    divisors = steps.divisors(node, program)
    if divisors is None:
        return "other is computed: products of rounded quotients are not exact"
    if not isinstance(argument(node, "self"), int | float) and steps.significant_bits(divisors) == 1:
        return None if bool((divisors.abs() >= 1).all()) else "other is less than 1: quotients may overflow"
    return "other is not a power of two: products of rounded quotients are not exact"


def masked_constant(node: Node, program: ProgramView) -> str | None:
    """The condition is a constant, and so is one of the sides, without NaN."""
    found = elementwise.filled_by_mask(node, program)
    if found is None:
        return "the condition, or both sides, are computed: XNNPACK has no comparison"
    return "the constant side has a NaN" if bool(found[1].isnan().any()) else None


def scales_down(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W), of which H and W do not change, and one other may."""
    shape = shape_of(argument(node, "self"))
    if len(shape) != 4:
        return f"an input of rank {len(shape)}: only (N, C, H, W) is taken"
    if dynamic_count(shape[2:]) or dynamic_count(shape) > 1:
        return f"sizes of {shape} change from call to call"
    return None


# -- selections ------------------------------------------------------------------------------------------------------


def chosen_by_constants(node: Node, program: ProgramView) -> str | None:
    """The indices are constants, those of each axis by themselves, and form at most 25 runs of neighbours."""
    found = indices_of_axes(node, program)
    if found is None:
        return "the indices are computed, or of several axes together: XNNPACK has no gather"
    for axis, indices in found.items():
        size = shape_of(argument(node, "self"))[axis]
        runs = len(index_runs(indices))
        if runs > RUN_LIMIT:
            return f"{runs} separate runs of indices: XNNPACK has no gather"
        if isinstance(size, Dynamic) and max(indices) >= smallest(size):
            return f"index {max(indices)} does not exist in every call: the axis has {size} elements"
    return None


def few_reversed(node: Node, program: ProgramView) -> str | None:
    """The axes that are reversed have at most 25 elements, and do not change."""
    shape = shape_of(argument(node, "self"))
    for axis in flipped_axes(node):
        if isinstance(shape[axis], Dynamic) or shape[axis] > RUN_LIMIT:  # type: ignore[operator]
            return f"{shape[axis]} elements are reversed: XNNPACK's slices do not run backwards"
    return None


def written_at_known_places(node: Node, program: ProgramView) -> str | None:
    """The axis that is written along does not change, the places are known, and the step is 1."""
    shape = shape_of(node)
    if "select" in str(node.target):
        index = argument(node, "index")
        axis = axis_of(argument(node, "dim"), len(shape))
        known = isinstance(index, int) and not isinstance(shape[axis], Dynamic)
        if not known:
            return "the place that is written is computed, or along an axis that changes"
        return "several sizes change from call to call" if dynamic_count(shape) > 1 else None
    axis, start, end, step = slice_bounds(node)
    if step != 1:
        return f"step {step}: XNNPACK's slices have no step"
    if isinstance(shape[axis], Dynamic) or not isinstance(start, int) or not isinstance(end, int):
        return "the place that is written is computed, or along an axis that changes"
    return None if end > start else "nothing is written"


def copied_whole(node: Node, program: ProgramView) -> str | None:
    """What is copied has the result's shape, or is repeated a known number of times."""
    source, target = shape_of(argument(node, "src")), shape_of(node)
    if source == target or not dynamic_count(target):
        return None
    return f"{source} is repeated to {target}, which changes from call to call"
