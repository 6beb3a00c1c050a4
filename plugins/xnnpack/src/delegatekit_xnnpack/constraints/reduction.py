"""Constraints of reductions and normalisations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from delegatekit_api import Constraint, ProgramView
from delegatekit_toolkit.sizes import Dynamic, dynamic_count

from ..arguments import argument, shape_of
from ..graph import MAX_RANK, Shape
from ..joined import reshape_obstacle
from ..lowering import reduction

if TYPE_CHECKING:
    from torch.fx import Node


def reducible(*, counted: bool = False, averaged: bool = False) -> Constraint:
    """Constraint: the axes to reduce can be brought where XNNPACK reduces them.

    `counted`: the number of elements must not change; `averaged`: they are reduced by means.
    """

    def check(node: Node, program: ProgramView) -> str | None:
        shape, reduced = shape_of(argument(node, "self")), reduction.reduced_sizes(node)
        if counted and dynamic_count(reduced):
            return f"a reduction over {math.prod(reduced)} elements, a number that changes from call to call"
        return _pairs_obstacle(shape, len(reduced)) if averaged else _pools_obstacle(shape)

    check.__doc__ = (
        "The number of reduced elements does not change, and w" if counted else "W"
    ) + f"here several sizes change, there are at most {MAX_RANK - 1 if averaged else 4} axes."
    return check


def whole_extreme(node: Node, program: ProgramView) -> str | None:
    """No size changes."""
    shape = shape_of(argument(node, "self"))
    return f"a maximum of {shape}, which changes from call to call" if dynamic_count(shape) else None


def few_pooled(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, there are at most 4 axes."""
    return _pools_obstacle(shape_of(argument(node, "self")))


def _pairs_obstacle(shape: Shape, reduced: int) -> str | None:
    if dynamic_count(shape) < 2 or len(shape) + reduced % 2 <= MAX_RANK - (reduced == len(shape)):
        return None
    return f"a mean of {len(shape)} axes, several of which change: XNNPACK reduces them in pairs"


def _pools_obstacle(shape: Shape) -> str | None:
    if dynamic_count(shape) < 2 or len(shape) <= 4:
        return None
    return f"a maximum of {len(shape)} axes, several of which change: XNNPACK pools feature maps"


def enough_elements(node: Node, program: ProgramView) -> str | None:
    """There are more elements than the correction."""
    count, correction = math.prod(reduction.reduced_sizes(node)), reduction.variance_correction(node)
    if isinstance(count, Dynamic):
        return f"correction {correction:g} of {count} elements, a number that changes" if correction else None
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def few_normalised(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, there are at most 5 axes."""
    return _pairs_obstacle(shape_of(argument(node, "input")), len(argument(node, "normalized_shape")))


def few_groups(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, there are at most 4 axes and 64 groups."""
    shape, groups = shape_of(argument(node, "input")), argument(node, "num_groups")
    batch, channels, *rest = shape
    if dynamic_count(shape) < 2:
        return None
    grouped = (batch, groups, channels // groups, *rest)
    return (
        reshape_obstacle(shape, grouped)
        or reshape_obstacle(grouped, shape)
        or _pairs_obstacle(grouped, len(grouped) - 2)
    )


def positive_epsilon(node: Node, program: ProgramView) -> str | None:
    """eps is positive."""
    epsilon = argument(node, "eps")
    return None if epsilon > 0 else f"eps = {epsilon}: a constant input would be divided by zero"


#: Of operators that reduce by a maximum first, and by a sum then.
exponential_sums = (reducible(counted=True, averaged=True), few_pooled)
