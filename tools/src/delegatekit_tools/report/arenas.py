"""The planned memory of a method, space by space: how full it is at its fullest, and the least that it could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delegatekit.emit import PlannedSpace, PlannedValue, Request, largest_load


@dataclass(frozen=True)
class ArenaReport:
    """One space of one method. `size` is what the file asks for; `bound` is the least that any plan could do with."""

    space: str
    memory_id: int
    #: Bytes, `overread` included.
    size: int
    #: The largest sum of bytes in use at one step.
    bound: int
    #: The first step at which so much is in use, and the values that are, largest first.
    peak_step: int
    peak: tuple[PlannedValue, ...]
    #: Bytes lost between the values of the peak because each begins at a multiple of the alignment.
    alignment_waste: int
    #: Bytes after the last value because a backend reads beyond its inputs.
    overread: int
    values: int

    @classmethod
    def of(cls, space: PlannedSpace, values: Sequence[PlannedValue]) -> ArenaReport:
        """The report of a space in which these values lie."""
        requests = [Request(value.size, value.first, value.last, space.alignment) for value in values]
        bound, step = largest_load(requests)
        alive = [(v, r) for v, r in zip(values, requests, strict=True) if v.first <= step <= v.last and v.size]
        return cls(
            space=space.name,
            memory_id=space.memory_id,
            size=space.size,
            bound=bound,
            peak_step=step,
            peak=tuple(sorted((value for value, _ in alive), key=lambda value: -value.size)),
            alignment_waste=sum(request.span - request.size for _, request in alive),
            overread=space.overread,
            values=len(values),
        )

    @property
    def excess(self) -> float:
        """The excess of the planned size over the bound, as a fraction of the bound: 0.0 cannot be improved."""
        return (self.size - self.overread) / self.bound - 1.0 if self.bound else 0.0
