"""Judges tensors of a lowered program against the referee's, by the bounds of `accuracy`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.quantization import sqnr_db
from delegatekit_api.nodes import argument
from delegatekit_toolkit.accuracy import (
    ROUNDOFF,
    Accuracy,
    compare,
    inner_roundings,
    longest_way,
    roundings,
    shaken,
    widened,
)

from .cut import Piece
from .referee import Values, evaluate, rounds_of
from .result import Measured
from .units import is_conversion, is_quantize

#: Elements smaller than this, relative to the largest, are left out of the relative error.
_SMALL: Final = 1e-3


class Judge:
    """Judges the pieces of one graph, whose inputs were the referee's values.

    `tighten` divides the bounds of floating-point numbers: 1 or more.
    """

    def __init__(self, edge: EdgeMethod, values: Values, tighten: float = 1.0) -> None:
        self._edge = edge
        self._values = values
        self._tighten = tighten

    def piece(self, piece: Piece, results: Mapping[Node, torch.Tensor], precision: str) -> dict[Node, Measured]:
        """Each output of a piece that ran in a precision, judged by what the piece itself may add to the errors."""
        references = evaluate(self._edge, piece.nodes, self._values)
        roundoff = max(ROUNDOFF["float32"], ROUNDOFF.get(precision, 0.0))
        off = {**self._values, **self._read(piece, lambda value: shaken(value, roundoff))}
        moved = evaluate(self._edge, piece.nodes, off)
        return {
            node: self._measured(node, results[node], references[node], moved[node], piece, precision)
            for node in piece.outputs
        }

    def _read(self, piece: Piece, change: Callable[[Any], Any]) -> dict[Node, Any]:
        """The values that a piece reads, transformed."""
        read = {item for node in piece.nodes for item in node.all_input_nodes}
        return {node: change(self._values[node]) for node in read if node in self._values}

    def _measured(self, node: Node, result: Any, reference: Any, moved: Any, piece: Piece, precision: str) -> Measured:
        accuracy = accuracy_of(self._edge, piece.nodes, self._values)
        native = _native(node, reference)
        found = measured(result, widened(reference), native, precision, accuracy, widened(moved), self._tighten)
        if not found.right and isinstance(result, torch.Tensor) and result.shape == reference.shape:
            # Eager's own kernel decides where there are NaNs and infinities; inputs of the piece that are beyond the
            # range of its precision (a mask of -1e30) are infinite there, or the largest number, which is not the
            # piece's own fault.
            held = {**self._values, **self._read(piece, lambda value: _held(value, precision))}
            exact = evaluate(self._edge, piece.nodes, held, _narrow)[node]
            result = torch.where(_saturated(result, exact, precision), exact, result)
            found = measured(result, widened(reference), exact, precision, accuracy, widened(moved), self._tighten)
        return found


def accuracy_of(edge: EdgeMethod, nodes: Sequence[Node], values: Values) -> Accuracy:
    """The accuracy of nodes that are computed together; `values` give the trip counts of loops among them."""
    rounding = longest_way(nodes, partial(_roundings, edge, values))
    quantizes = [node for node in nodes if is_quantize(node)]
    if not quantizes:
        return Accuracy(max(1, rounding), exact=rounding == 0, ill_conditioned=True)
    depth = longest_way(nodes, _integer_roundings)
    return Accuracy(max(1, depth), ill_conditioned=True, steps=max(1, depth), step=max(map(_step, quantizes)))


def _roundings(edge: EdgeMethod, values: Values, node: Node) -> int:
    return roundings(node) or _roundings_inside(edge, node, values)


def _roundings_inside(edge: EdgeMethod, node: Node, values: Values) -> int:
    """Roundings inside a call of control flow, in all its iterations."""
    regions = edge.regions.get(node, ())
    if not regions:
        return 0
    inside = [longest_way(region.graph.nodes, partial(_roundings, region, values)) for region in regions]
    return max(inside) * max(1, rounds_of(edge, node, values))


def _integer_roundings(node: Node) -> int:
    """Roundings to integers: the quantize itself, and those between the parts of an operator that has several."""
    if is_conversion(node):
        return int(is_quantize(node))
    return max(0, inner_roundings(node) - 1)


def _step(quantize: Node) -> float:
    """The step of a quantization relative to its range."""
    least, most = argument(quantize, "quant_min"), argument(quantize, "quant_max")
    if not isinstance(least, int | float) or not isinstance(most, int | float):
        limits = torch.iinfo(quantize.meta["val"].dtype)
        least, most = limits.min, limits.max
    return 1.0 / float(most - least)


def measured(
    result: Any,
    reference: torch.Tensor,
    native: torch.Tensor,
    precision: str,
    accuracy: Accuracy,
    moved: torch.Tensor | None,
    tighten: float = 1.0,
) -> Measured:
    """A tensor against the referee's in double precision; `moved` is the reference after a rounding of the inputs."""
    found = compare([result], [reference], [native], precision, accuracy, None if moved is None else [moved])
    difference = found.difference.removeprefix("output 0: ").removeprefix("output 0 ")
    bound = found.tolerance
    if bound is not None and native.is_floating_point():
        bound /= tighten
        if not difference and found.error is not None and found.error > bound:
            difference = f"relative error {found.error:.3g} is above {bound:.3g}"
    if not isinstance(result, torch.Tensor) or result.shape != reference.shape:
        return Measured(difference=difference)
    wide, exact = result.double(), reference.double()
    finite = wide.isfinite() & exact.isfinite()
    wide, exact = wide[finite], exact[finite]
    if not exact.numel():
        return Measured(found.error, bound, difference=difference)
    error = (wide - exact).abs()
    large = exact.abs() > _SMALL * exact.abs().max()
    relative = float((error[large] / exact[large].abs()).max()) if large.any() else (math.inf if error.any() else 0.0)
    return Measured(found.error, bound, float(error.max()), relative, sqnr_db(wide, exact), difference)


def _native(node: Node, reference: Any) -> torch.Tensor:
    """The reference as representable in the dtype that the graph declares."""
    declared = node.meta["val"]
    found: torch.Tensor = reference.to(declared.dtype)
    return found


def _held(value: Any, precision: str) -> Any:
    """A value as represented by a program that computes in a precision."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or precision == "float64":
        return value
    return value.to(getattr(torch, precision)).float()


def _saturated(result: torch.Tensor, exact: torch.Tensor, precision: str) -> torch.Tensor:
    """Positions where a result is the largest number of a precision in place of an infinity."""
    if result.dtype != torch.float32 or precision == "float64":
        return torch.zeros_like(result, dtype=torch.bool)
    largest = torch.finfo(getattr(torch, precision)).max
    return exact.isinf() & (result.sign() == exact.sign()) & (result.abs() >= largest)


def _narrow(node: Node, value: Any) -> Any:
    declared = node.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(declared, torch.Tensor):
        return value.to(declared.dtype)
    return value
