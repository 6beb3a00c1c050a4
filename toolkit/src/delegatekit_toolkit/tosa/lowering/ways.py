"""Selects the one of several ways to compute something that takes the fewest cycles on the device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeAlias

from delegatekit_api import LoweringError
from delegatekit_toolkit.tosa import DType, Graph, Tensor

#: The cycles that a graph would take on the device, None if it cannot be run there.
CountCycles: TypeAlias = Callable[[Graph], "int | None"]
#: One of several ways to compute a tensor from another, with a `TosaBuilder`.
Way: TypeAlias = Callable[[Any, Tensor], Tensor]


class Ways:
    """Tries ways in graphs of their own, and caches the results.

    `cycles` gives the cycles of a graph; without it the first way is used. `trial` makes an empty `TosaBuilder` that
    shares the cache.
    """

    def __init__(self, cycles: CountCycles | None, trial: Callable[[Ways], Any]) -> None:
        self._cycles: Final = cycles
        self._trial: Final = trial
        self._choices: Final[dict[tuple[Hashable, DType, tuple[int, ...]], int]] = {}

    def choose(self, x: Tensor, ways: Sequence[Way], key: Hashable, otherwise: Sequence[Way] = ()) -> Way:
        """The way that takes the fewest cycles for a tensor, or the first of `otherwise` if none of them can be run.

        `key` distinguishes what the ways do for tensors of one shape and type. Raises LoweringError if there is no way.
        """
        every = (*ways, *otherwise)
        if self._cycles is None or len(every) == 1:
            return ways[0]
        known = self._choices.get((key, x.dtype, x.shape))
        if known is None:
            known = self._choices[(key, x.dtype, x.shape)] = self._cheapest(x, ways, otherwise)
        return every[known]

    def _cheapest(self, x: Tensor, ways: Sequence[Way], otherwise: Sequence[Way]) -> int:
        costs = {place: cost for place, way in enumerate(ways) if (cost := self._cost(x, way)) is not None}
        if costs:
            return min(costs, key=costs.__getitem__)
        for place, way in enumerate(otherwise, len(ways)):
            if self._cost(x, way) is not None:
                return place
        raise LoweringError(f"the device has no way to do it for a tensor of {x.shape}")

    def _cost(self, x: Tensor, way: Way) -> int | None:
        assert self._cycles is not None
        trial = self._trial(self)
        try:
            trial.graph.output(way(trial, trial.graph.input("x", x.shape, x.dtype)))
        except LoweringError:
            return None
        return self._cycles(trial.graph)
