"""Judges tensors of a lowered program against the referee's, by the bounds of `accuracy`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.quantization import sqnr_db
from delegatekit_toolkit.accuracy import ROUNDOFF, Accuracy, Chosen, compare, shaken, widened

from .attainable import accuracy_of, held, precision_of
from .cut import Piece
from .following import Choices, Followed, Trace, along, choices_in, follow
from .referee import Values, computed
from .result import Measured

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

    def piece(
        self,
        piece: Piece,
        results: Mapping[Node, torch.Tensor],
        precision: str,
        inside: Mapping[Node, Trace] | None = None,
    ) -> dict[Node, Measured]:
        """Each output of a piece that ran in a precision, judged by what the piece itself may add to the errors.

        If something differs from what PyTorch computes, it is judged along the choices that are among the results, and
        those that are made inside control flow.
        """
        found = self._judged(piece, results, precision, {}, {})
        choices = choices_in(piece.nodes)
        made = {node: results[choice] for node, choice in choices.items() if choice in results}
        if not (made or inside) or all(item.right for item in found.values()):
            return found
        return self._judged(piece, results, precision, made, inside or {})

    def _judged(
        self,
        piece: Piece,
        results: Mapping[Node, torch.Tensor],
        precision: str,
        made: Choices,
        inside: Mapping[Node, Trace],
    ) -> dict[Node, Measured]:
        roundoff = max(ROUNDOFF["float32"], ROUNDOFF.get(precision, 0.0))
        off = {**self._values, **self._read(piece, lambda value: shaken(value, roundoff))}
        followed = follow(self._edge, piece.nodes, self._values, off, made, precision, inside)
        return {node: self._of_output(node, results[node], followed, piece, precision) for node in piece.outputs}

    def _of_output(self, node: Node, result: Any, followed: Followed, piece: Piece, precision: str) -> Measured:
        chosen = followed.of(node)
        if chosen is None or getattr(result, "dtype", None) != node.meta["val"].dtype:
            return self._measured(node, result, followed, piece, precision)
        return of_choice(chosen, partial(self._measured, node, result, followed, piece, precision))

    def _read(self, piece: Piece, change: Callable[[Any], Any]) -> dict[Node, Any]:
        """The values that a piece reads, transformed."""
        read = {item for node in piece.nodes for item in node.all_input_nodes}
        return {node: change(self._values[node]) for node in read if node in self._values}

    def _measured(self, node: Node, result: Any, followed: Followed, piece: Piece, precision: str) -> Measured:
        reference, moved = followed.references[node], widened(followed.moved[node])
        accuracy = accuracy_of(self._edge, piece.nodes, self._values)
        native, rounded = _native(node, reference), precision_of(piece.nodes, precision)
        found = measured(result, widened(reference), native, rounded, accuracy, moved, self._tighten)
        if not found.right and isinstance(result, torch.Tensor) and result.shape == reference.shape:
            # Eager's own kernel decides where there are NaNs and infinities; inputs of the piece that are beyond the
            # range of its precision (a mask of -1e30) are infinite there, or the largest number, which is not the
            # piece's own fault.
            exact = self._represented(piece, followed.choices, precision)[node]
            result = torch.where(_saturated(result, exact, precision), exact, result)
            found = measured(result, widened(reference), exact, rounded, accuracy, moved, self._tighten)
        return found

    def _represented(self, piece: Piece, choices: Choices, precision: str) -> dict[Node, Any]:
        """The piece's values in the dtypes of the graph, of inputs as a program holds them, along choices."""
        known = {**self._values, **self._read(piece, lambda value: held(value, precision))}
        found: dict[Node, Any] = {}
        for node in piece.nodes:
            found[node] = computed(self._edge, node, found, known)
            found[node] = _narrow(node, along(choices, node, found, known))
        return found


def of_choice(found: Chosen, as_number: Callable[[], Measured]) -> Measured:
    """The judgment of an index, a mask or whole numbers: by the operands that they stand for.

    Of whole numbers that are computed as real ones, the distance from these counts, too.
    """
    if found.difference:
        return Measured(found.error, found.bound, difference=found.difference)
    number = as_number()
    if number.right and not number.error:
        return Measured(found.error, found.bound, ties=found.differing)
    return replace(number, ties=found.differing)


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
