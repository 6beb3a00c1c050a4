"""Constraints of operators on feature maps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from delegatekit_api import Constraint, ProgramView
from delegatekit_toolkit.sizes import dynamic_count, largest

from ..arguments import argument, per_axis, rank_of, shape_of
from ..lowering import spatial
from ..lowering.shape import index_runs
from .general import RUN_LIMIT

if TYPE_CHECKING:
    from torch.fx import Node


def one_or_two_dimensional(node: Node, program: ProgramView) -> str | None:
    """1-d or 2-d, with a batch axis."""
    rank = rank_of(argument(node, "input"))
    if rank in (3, 4):
        return None
    return f"a convolution over {rank - 2} axes: XNNPACK has one and two"


def convolution_padding(node: Node, program: ProgramView) -> str | None:
    """Padding is not negative, and output_padding is less than the stride."""
    if min(argument(node, "padding"), default=0) < 0:
        return f"negative padding {list(argument(node, 'padding'))}"
    if not argument(node, "transposed"):
        return None
    extra, stride = argument(node, "output_padding"), argument(node, "stride")
    if all(more < step for more, step in zip(extra, stride, strict=True)):
        return None
    return f"output_padding {list(extra)} is not less than stride {list(stride)}"


def pool_shape(spatial: int, *, divides: bool = False) -> Constraint:
    """Constraint: the pooling has `spatial` axes, and an average is divided by the window's own size."""

    def check(node: Node, program: ProgramView) -> str | None:
        rank = rank_of(argument(node, "self"))
        if rank not in (spatial + 1, spatial + 2):
            return f"an input of rank {rank}"
        if argument(node, "ceil_mode") and dynamic_count(shape_of(argument(node, "self"))[-spatial:]):
            return "ceil_mode where the size changes from call to call: XNNPACK's padding is known beforehand"
        divisor = argument(node, "divisor_override") if divides else None
        if divisor is None:
            return None
        window = spatial_window(node, spatial)
        if divisor != window or any(per_axis(argument(node, "padding"), spatial)) or argument(node, "ceil_mode"):
            return f"divisor_override = {divisor}: XNNPACK divides by the number of elements in the window"
        return None

    divisor = ", no divisor of its own" if divides else ""
    check.__doc__ = f"{spatial} spatial axes{divisor}; with ceil_mode, they do not change."
    return check


def spatial_window(node: Node, axes: int) -> int:
    """Elements of a pooling window."""
    return math.prod(per_axis(argument(node, "kernel_size"), axes))


def few_windows(axes: int) -> Constraint:
    """Constraint: the result's sizes divide the input's, or are small."""

    def check(node: Node, program: ProgramView) -> str | None:
        before, after = shape_of(argument(node, "self"))[-axes:], shape_of(node)[-axes:]
        if dynamic_count((*before, *after)):
            return f"{before} to {after} needs windows that change from call to call"
        if all(old % new == 0 for old, new in zip(before, after, strict=True)) or max(map(largest, after)) <= RUN_LIMIT:
            return None
        return f"{before} to {after} needs more than {RUN_LIMIT} windows of different sizes"

    check.__doc__ = "The result's sizes divide the input's, or are 25 at most; and none of them changes."
    return check


def resize_ratio(node: Node, program: ProgramView) -> str | None:
    """The new height and width do not change; scale factors, if given, are exactly the ratio of the sizes."""
    if dynamic_count(shape_of(node)[2:]):
        return "a height or width that changes from call to call: XNNPACK resizes to a known one"
    if argument(node, "align_corners") or spatial.resize_is_exact(node):
        return None
    return f"scale_factors {argument(node, 'scale_factors')} are not the ratio of the sizes"


def nearest_ratio(node: Node, program: ProgramView) -> str | None:
    """Rows and columns are repeated equally often; or sizes are known, and what repeats has at most 25 runs."""
    before, after = shape_of(argument(node, "input"))[2:], shape_of(node)[2:]
    if spatial.resize_is_exact(node):
        if spatial.nearest_repeats_evenly(node):
            return None
        sizes = [largest(size) for size in before]
        patterns = map(spatial.pattern_of, spatial.nearest_indices(node), sizes)
        if not dynamic_count((*before, *after)) and all(len(index_runs(found)) <= RUN_LIMIT for found, _ in patterns):
            return None
    return f"nearest neighbours from {before} to {after} are not whole repetitions"


def image(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W)."""
    rank = rank_of(argument(node, "input"))
    return None if rank == 4 else f"an input of rank {rank}"
