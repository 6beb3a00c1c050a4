"""Selections: operators whose results jump where their operands come close to one another, or to a threshold.

An index, a mask or a whole number has no error of its own: it is judged by the operands that it stands for. A choice
is right if numbers within the operands' bounds lead to it: two elements of a sort may change places if they are not
further apart than both their bounds. What follows is then computed along the choice that was made.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import torch
from torch.fx import Node

from delegatekit_api.nodes import argument, operator_name

#: What is wrong with elements of a choice, in words, before the distance.
_SIDE: Final = "elements are on the wrong side of a threshold, at a distance of"
_NUMBERS: Final = "numbers are off by"
_LARGEST: Final = torch.finfo(torch.float64).max


@dataclass(frozen=True)
class Operand:
    """A tensor in double precision, and the least and the largest number that each element may have instead."""

    value: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    @classmethod
    def exact(cls, value: Any) -> Operand:
        """An operand that is known exactly: a tensor or a number."""
        found = torch.as_tensor(value)
        found = found.double() if found.dtype != torch.float64 else found
        return cls(found, found, found)


@dataclass(frozen=True)
class Chosen:
    """The judgment of a choice."""

    #: Elements of the choice that are not the reference's own, and all of them.
    differing: int
    total: int
    #: Distance of the operands that were chosen from those that the reference would have chosen, relative to the
    #: largest of all: at the element with the least margin, and its bound.
    error: float = 0.0
    bound: float = 0.0
    #: What no bound excuses, in words; empty if the choice is right.
    difference: str = ""


class Selection(ABC):
    """The rule of one call of a selecting operator."""

    #: The names of the arguments that decide.
    reads: ClassVar[tuple[str, ...]] = ("self",)
    #: The position of the choice among the results; None: it is the only result.
    place: int | None = None

    def choice(self, result: Any) -> torch.Tensor:
        """The choice among the operator's results."""
        found: torch.Tensor = result if self.place is None else result[self.place]
        return found

    def read(self, given: torch.Tensor) -> torch.Tensor:
        """The choice that a program's result stands for."""
        return given

    @abstractmethod
    def judged(self, operands: Mapping[str, Operand], given: torch.Tensor, own: torch.Tensor) -> Chosen:
        """The judgment of a choice; `own` is that of the reference."""

    def along(self, values: Mapping[str, torch.Tensor], given: torch.Tensor, result: Any) -> Any:
        """The operator's results for a choice; `result` are those for the operands' own."""
        return given


def selection_of(node: Node) -> Selection | None:
    """The rule of a call in an exported or edge graph; None for an operator that does not select.

    >>> graph = torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> selection_of(graph.call_function(torch.ops.aten.topk.default, (x, 3), {"largest": False})).largest
    False
    >>> selection_of(graph.call_function(torch.ops.aten.relu.default, (x,))) is None
    True
    """
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    rule = _RULES.get(operator_name(node))
    return rule(node) if rule is not None else None


@dataclass(frozen=True)
class Order(Selection):
    """The first elements along an axis in an order: all of a sort, some of a top-k, one for an extreme."""

    dim: int | None
    largest: bool = True
    #: False: the elements chosen may stand in any order.
    ordered: bool = True
    #: True if elements that are equal for sure keep their order.
    stable: bool = False
    keepdim: bool = True
    place: int | None = None
    #: True if NaN is chosen first, not last, where the smallest is wanted.
    nan_first: bool = False

    def judged(self, operands: Mapping[str, Operand], given: torch.Tensor, own: torch.Tensor) -> Chosen:
        """An index is right if the element is, within the bounds, at least as good as all that come after it."""
        operand, dim = self._rows(operands["self"])
        places = self._indices(given, operand.value, dim)
        if strange := _strange(places, operand.value.shape[dim], dim):
            return Chosen(_differing(given, own), given.numel(), difference=strange)
        value, low, high = _oriented(operand, self.largest, self.largest or self.nan_first)
        chosen_value, chosen_low, chosen_high = (item.gather(dim, places) for item in (value, low, high))
        after = [_left(item, dim, places) for item in (value, low)]
        if self.ordered:
            pairs = zip(after, (chosen_value, chosen_low), strict=True)
            after = [torch.maximum(rest, _best_later(item, dim)) for rest, item in pairs]
        best, least = (item.expand_as(places) for item in after)
        found = _verdict(given, own, (chosen_value, chosen_high), (best, least), operand.value)
        if self.stable and not found.difference and (moved := _unstable(places, operand, dim)):
            return Chosen(found.differing, found.total, difference=f"{moved} equal elements are not in their order")
        return found

    def along(self, values: Mapping[str, torch.Tensor], given: torch.Tensor, result: Any) -> Any:
        """The indices, and the elements at them."""
        if self.place is None:
            return given
        value = values["self"]
        if not value.dim():
            return (value, given)
        dim = self.dim if self.dim is not None else -1
        places = given if self.keepdim else given.unsqueeze(dim)
        found = value.gather(dim, places)
        return (found if self.keepdim else found.squeeze(dim), given)

    def _rows(self, operand: Operand) -> tuple[Operand, int]:
        """The operand with the axis of the choice, and that axis."""
        if operand.value.dim() and self.dim is not None:
            return operand, self.dim % operand.value.dim()
        return Operand(*(item.reshape(-1) for item in (operand.value, operand.low, operand.high))), 0

    def _indices(self, given: torch.Tensor, value: torch.Tensor, dim: int) -> torch.Tensor:
        """The indices with the axis of the choice."""
        found = given.long()
        if self.dim is None or not given.dim():
            return found.reshape([-1 if axis == dim else 1 for axis in range(value.dim())])
        return found if self.keepdim else found.unsqueeze(dim)


@dataclass(frozen=True)
class Threshold(Selection):
    """A comparison of each element with another one, or with a number."""

    reads: ClassVar[tuple[str, ...]] = ("self", "other")

    def judged(self, operands: Mapping[str, Operand], given: torch.Tensor, own: torch.Tensor) -> Chosen:
        """Either answer is right where the operands, within their bounds, may be equal."""
        left, right = operands["self"], operands.get("other", Operand.exact(0.0))
        apart = (left.value - right.value).abs()
        # The least distance between two intervals: below zero where they overlap.
        gap = torch.maximum(left.low - right.high, right.low - left.high).nan_to_num(0.0)
        sure = (left.low == left.high) & (right.low == right.high)
        return _elements(given, own, (gap > 0) | sure | apart.isnan(), apart, apart - gap, (left, right), _SIDE)


@dataclass(frozen=True)
class Steps(Selection):
    """Whole numbers from real ones: floor, round, conversions to integers, signs."""

    #: The function of the operands.
    function: Callable[..., torch.Tensor]
    names: tuple[str, ...] = ("self",)

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the arguments that decide."""
        return self.names

    def read(self, given: torch.Tensor) -> torch.Tensor:
        """The whole numbers next to what was computed, which may be off by a rounding."""
        return given.round()

    def judged(self, operands: Mapping[str, Operand], given: torch.Tensor, own: torch.Tensor) -> Chosen:
        """A number is right if it lies between those of the least and the largest operands."""
        used = [operands[name] for name in self.names]
        corners = [self.function(*corner) for corner in itertools.product(*((item.low, item.high) for item in used))]
        low, high = (getattr(torch.stack(corners).double(), name)(0) for name in ("amin", "amax"))
        wide, exact = given.double(), own.double()
        off, span = (wide - exact).abs(), torch.maximum(high - exact, exact - low)
        beyond = ~((wide >= low) & (wide <= high)) & ~(wide.isnan() & exact.isnan())
        if "other" in self.names:  # a divisor that may be zero explains any quotient
            unsure = (operands["other"].low <= 0) & (operands["other"].high >= 0)
            beyond, span = beyond & ~unsure, torch.where(unsure, torch.maximum(span, off), span)
        return _elements(given, own, beyond, off, span, (Operand.exact(exact),), _NUMBERS)


# -- the parts of a judgment -------------------------------------------------------------------------------------------


def _oriented(operand: Operand, largest: bool, nan_first: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Value, least and largest, turned so that more is better; NaN is beyond the infinities, on the side it goes to."""
    three = (operand.value, operand.low, operand.high) if largest else (-operand.value, -operand.high, -operand.low)
    end = torch.inf if nan_first else -torch.inf
    unknown = operand.value.isnan()
    return tuple(item.clamp(-_LARGEST, _LARGEST).masked_fill(unknown, end) for item in three)  # type: ignore[return-value]


def _strange(places: torch.Tensor, size: int, dim: int) -> str:
    """Indices that no operands explain, in words; empty if there are none."""
    outside = (places < 0) | (places >= size)
    if outside.any():
        return f"has indices outside 0 to {size - 1}: {int(outside.sum())} of {places.numel()}"
    twice = places.sort(dim).values.diff(dim=dim) == 0
    return f"selects elements twice: {int(twice.sum())} of {places.numel()}" if twice.any() else ""


def _left(value: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    """The best element that was not chosen; minus infinity if all were."""
    return value.scatter(dim, places, -torch.inf).amax(dim, keepdim=True)


def _best_later(value: torch.Tensor, dim: int) -> torch.Tensor:
    """For each element of an order, the best of those after it; minus infinity for the last."""
    best = value.flip(dim).cummax(dim).values.flip(dim)
    last = torch.full_like(value.narrow(dim, 0, 1), -torch.inf)
    return torch.cat([best.narrow(dim, 1, value.shape[dim] - 1), last], dim)


def _verdict(
    given: torch.Tensor,
    own: torch.Tensor,
    chosen: tuple[torch.Tensor, torch.Tensor],
    rest: tuple[torch.Tensor, torch.Tensor],
    operand: torch.Tensor,
) -> Chosen:
    """Chosen elements (value and largest) against the best that should not be better (value and least)."""
    (value, high), (best, least) = chosen, rest
    beyond = least > high
    gap = (best - value).nan_to_num(0.0, 0.0, 0.0).clamp(min=0.0)
    allowed = (gap - (least - high)).nan_to_num(0.0, 0.0, 0.0).clamp(min=0.0)
    return _worst(given, own, beyond, gap, allowed, [operand], "indices select elements that are off by")


def _elements(
    given: torch.Tensor,
    own: torch.Tensor,
    beyond: torch.Tensor,
    gap: torch.Tensor,
    allowed: torch.Tensor,
    operands: Sequence[Operand],
    what: str,
) -> Chosen:
    """The judgment of elements that differ from the reference's own where they must not."""
    differs = _unlike(given, own)
    gap, allowed = (torch.where(differs, item.nan_to_num(0.0, 0.0, 0.0), 0.0) for item in (gap, allowed))
    values = [item.value for item in operands]
    return _worst(given, own, beyond & differs, gap, allowed.clamp(min=0.0), values, what)


def _worst(
    given: torch.Tensor,
    own: torch.Tensor,
    beyond: torch.Tensor,
    gap: torch.Tensor,
    allowed: torch.Tensor,
    operands: Sequence[torch.Tensor],
    what: str,
) -> Chosen:
    differing, total = _differing(given, own), given.numel()
    if not differing and not beyond.any():
        return Chosen(0, total)
    scale = max((float(item[item.isfinite()].abs().max()) for item in operands if item.isfinite().any()), default=0.0)
    scale = scale or 1.0
    place = int(((gap - allowed) + torch.where(beyond, 2 * scale, 0.0)).argmax())
    error, bound = (float(item.reshape(-1)[place]) / scale for item in (gap, allowed))
    if not beyond.any():
        return Chosen(differing, total, error, bound)
    count = int(beyond.sum())
    text = f"{count} of {total} {what} {error:.3g} of the largest, {bound:.3g} may be"
    return Chosen(differing, total, error, bound, text)


def _unstable(places: torch.Tensor, operand: Operand, dim: int) -> int:
    """The number of neighbors in an order that are equal for sure, and not in the order of their indices."""
    sure = (operand.low == operand.high).gather(dim, places)
    value, count = operand.value.gather(dim, places), places.shape[dim] - 1
    if count < 1:
        return 0
    parts = [(item.narrow(dim, 0, count), item.narrow(dim, 1, count)) for item in (value, sure, places)]
    (one, other), (first, second), (before, after) = parts
    return int(((one == other) & first & second & (before > after)).sum())


def _differing(given: torch.Tensor, own: torch.Tensor) -> int:
    if given.shape != own.shape:
        return given.numel()
    return int(_unlike(given, own).sum())


def _unlike(given: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """The elements that differ; NaN is like NaN."""
    return (given != own) & ~(given.isnan() & own.isnan())


# -- the operators -----------------------------------------------------------------------------------------------------


def _extreme(largest: bool, place: int | None, node: Node) -> Selection:
    dim = argument(node, "dim")
    return Order(
        dim if isinstance(dim, int) else None,
        largest=largest,
        keepdim=bool(argument(node, "keepdim")) or dim is None,
        place=place,
        nan_first=True,
    )


def _top(node: Node) -> Selection:
    return Order(
        argument(node, "dim"),
        largest=bool(argument(node, "largest")),
        ordered=bool(argument(node, "sorted")),
        place=1,
    )


def _sort(place: int | None, stable: bool, node: Node) -> Selection:
    return Order(
        argument(node, "dim"),
        largest=bool(argument(node, "descending")),
        stable=stable and bool(argument(node, "stable")),
        place=place,
    )


def _conversion(node: Node) -> Selection | None:
    """A conversion of real numbers to integers or bools; None for all others."""
    operand, value = argument(node, "self"), node.meta.get("val")
    before = operand.meta.get("val") if isinstance(operand, Node) else None
    if not isinstance(before, torch.Tensor) or not isinstance(value, torch.Tensor):
        return None
    if not before.is_floating_point() or value.is_floating_point():
        return None
    return Threshold() if value.dtype == torch.bool else Steps(lambda x: x.trunc())


def _quotient(node: Node) -> Selection | None:
    mode = argument(node, "rounding_mode")
    return None if mode is None else Steps(partial(torch.div, rounding_mode=mode), ("self", "other"))


_FUNCTIONS: Final[Mapping[str, Callable[..., torch.Tensor]]] = {
    name: getattr(torch, name) for name in ("floor", "ceil", "round", "trunc", "sign")
}
#: Operator -> the rule of its calls.
_RULES: Final[Mapping[str, Callable[[Node], Selection | None]]] = {
    "aten.argmax.default": partial(_extreme, True, None),
    "aten.argmin.default": partial(_extreme, False, None),
    "aten.max.dim": partial(_extreme, True, 1),
    "aten.min.dim": partial(_extreme, False, 1),
    "aten.topk.default": _top,
    "aten.sort.default": partial(_sort, 1, False),
    "aten.sort.stable": partial(_sort, 1, True),
    "aten.argsort.default": partial(_sort, None, False),
    "aten.argsort.stable": partial(_sort, None, True),
    **{
        f"aten.{name}.{form}": lambda node: Threshold()
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for form in ("Scalar", "Tensor")
    },
    "aten.logical_not.default": lambda node: Threshold(),
    **{f"aten.{name}.default": lambda node, f=found: Steps(f) for name, found in _FUNCTIONS.items()},  # type: ignore[misc]
    "aten._to_copy.default": _conversion,
    "aten.to.dtype": _conversion,
    "aten.div.Tensor_mode": _quotient,
    "aten.div.Scalar_mode": _quotient,
}
