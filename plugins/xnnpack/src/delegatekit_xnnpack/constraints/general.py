"""Constraints of all operators, and those that several families share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from delegatekit_api import Constraint, ProgramView
from delegatekit_toolkit.sizes import Dynamic, is_bounded, largest, smallest

from ..arguments import argument, rank_of, shape_of, tensor_operands
from ..graph import MAX_RANK
from ..precision import FLOATS
from ..quantized import QUANTIZATION, is_dequantized

if TYPE_CHECKING:
    from torch.fx import Node


#: Slices that a selection may be cut into: two levels of concatenation.
RUN_LIMIT = 25


# -- every operator ----------------------------------------------------------------------------------------------------


def floating_tensors(node: Node, program: ProgramView) -> str | None:
    """Tensors are float32, float16 or bfloat16 (single numbers known at lowering time are converted), or quantized."""
    if str(node.target) in QUANTIZATION:
        return None
    for operand in (*tensor_operands(node), node):
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return f"{operand.name} is not one tensor"
        if value.dtype in FLOATS:
            continue
        if program.is_constant(operand) and (_is_number(value) or operand in _index_operands(node)):
            continue
        kind = str(value.dtype).removeprefix("torch.")
        return f"{operand.name} is {kind}: only float32, float16 and bfloat16 are taken"
    return None


def _is_number(value: torch.Tensor) -> bool:
    return value.dim() == 0 and not value.is_complex()


def _index_operands(node: Node) -> Sequence[Any]:
    """Integer and bool operands that become part of the lowered nodes."""
    name = _INDEX_OPERANDS.get(str(node.target))
    operands = () if name is None else argument(node, name)
    return operands if isinstance(operands, list | tuple) else (operands,)


_INDEX_OPERANDS = {
    "aten.index_select.default": "index",
    "aten.index.Tensor": "indices",
    "aten.where.self": "condition",
}


def _tensors(node: Node) -> list[Node]:
    """The tensors that a call reads, and its result, if that is one tensor."""
    return [item for item in (*tensor_operands(node), node) if isinstance(item.meta.get("val"), torch.Tensor)]


def bounded_sizes(node: Node, program: ProgramView) -> str | None:
    """Sizes that change from call to call have an upper bound, and grow together."""
    for operand in _tensors(node):
        sizes = operand.meta["val"].shape
        if not all(map(is_bounded, sizes)):
            return f"{operand.name} has a size without an upper bound, {tuple(sizes)}"
        if not all(largest(size) == max(size.calls) for size in shape_of(operand) if isinstance(size, Dynamic)):
            return f"{operand.name} has a size that shrinks where another one grows, {tuple(sizes)}"
    return None


def rank_and_elements(node: Node, program: ProgramView) -> str | None:
    """At most 6 axes, and at least one element."""
    for operand in _tensors(node):
        shape = shape_of(operand)
        if len(shape) > MAX_RANK:
            return f"{operand.name} has {len(shape)} axes: XNNPACK allows {MAX_RANK}"
        if 0 in shape:
            return f"{operand.name} has no elements, {shape}"
        if any(smallest(size) < 1 for size in shape):
            return f"{operand.name} has no elements in some calls, {shape}"
    return None


#: Operators whose size arguments need not be read: they follow from the shape of the result.
_TAKE_SIZES = (
    *("view_copy", "expand_copy", "slice_copy", "select_copy", "upsample_bilinear2d", "upsample_nearest2d"),
    *("choose_qparams_affine", "quantize_affine", "dequantize_affine"),
)


def numbers_known(node: Node, program: ProgramView) -> str | None:
    """Numbers beside the tensors, but for sizes of results, are not computed from sizes."""
    numbers = [operand.name for operand in node.all_input_nodes if operand not in tensor_operands(node)]
    if not numbers or str(node.target).split(".")[1] in _TAKE_SIZES:
        return None
    return f"{numbers[0]} is a number that is computed from sizes"


# -- shared ------------------------------------------------------------------------------------------------------------


def not_scalar(node: Node, program: ProgramView) -> str | None:
    """No operand and no result of rank 0."""
    for operand in (*tensor_operands(node), node):
        if rank_of(operand) == 0:
            return f"{operand.name} has rank 0: XNNPACK works along an axis"
    return None


def constant(*names: str) -> Constraint:
    """Constraint: the named tensor arguments are constants (or absent)."""

    def check(node: Node, program: ProgramView) -> str | None:
        for name in names:
            operand = argument(node, name)
            if operand is not None and not program.is_constant(operand) and not is_dequantized(operand, program):
                return f"{name} is computed: XNNPACK wants a constant"
        return None

    check.__doc__ = f"{' and '.join(names)} {'are constants' if len(names) > 1 else 'is a constant'}."
    return check


def equals(name: str, *allowed: Any) -> Constraint:
    """Constraint: an argument has one of the allowed values."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        return None if value in allowed else f"{name} = {value}: only {' or '.join(map(str, allowed))} is taken"

    check.__doc__ = f"{name} is {' or '.join(map(str, allowed))}."
    return check


def not_narrowed(node: Node, program: ProgramView) -> str | None:
    """The result is not of a narrower type than the input."""
    before, after = argument(node, "self").meta["val"].dtype, node.meta["val"].dtype
    if after in (before, torch.float32):
        return None
    return f"dtype = {after}: PyTorch rounds the input to it, which adds up to another sum"


def normal_number(name: str) -> Constraint:
    """Constraint: an argument is 0 or a normal float32 number."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        if isinstance(value, int | float) and (value == 0 or SMALLEST <= abs(value) <= LARGEST):
            return None
        return f"{name} = {value} is not a normal float32 number"

    check.__doc__ = f"{name} is 0 or a normal float32 number."
    return check


def float32_number(name: str) -> Constraint:
    """Constraint: an argument is representable in float32, infinity and NaN included."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        return f"{name} = {value} is not a float32 number" if overflows(value) else None

    check.__doc__ = f"{name} fits float32."
    return check


LARGEST = torch.finfo(torch.float32).max
SMALLEST = torch.finfo(torch.float32).tiny


def overflows(value: float) -> bool:
    """Whether a finite number is beyond float32."""
    return math.isfinite(value) and abs(value) > LARGEST
