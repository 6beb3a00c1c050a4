"""What was measured of instructions and operators: figures of several calls, with their median and spread."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median, quantiles

from delegatekit_api.devices import Estimate


@dataclass(frozen=True)
class Times:
    """Seconds of one thing, one figure for each call."""

    wall: tuple[float, ...]
    #: CPU seconds of the whole process, all threads together; empty where they are not known.
    cpu: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """The median of the wall times; 0 if there are none."""
        return median(self.wall) if self.wall else 0.0

    @property
    def median_cpu(self) -> float | None:
        """The median of the CPU times; None if they are not known."""
        return median(self.cpu) if self.cpu else None

    @property
    def spread(self) -> float:
        """The distance between the quartiles of the wall times: half of them lie within it."""
        if len(self.wall) < 2:
            return 0.0
        first, _, third = quantiles(self.wall, n=4, method="inclusive")
        return third - first


@dataclass(frozen=True)
class Origin:
    """Where something of the file comes from, as the debug map says; empty without one."""

    operators: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    #: "model.py:12, in forward"
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorProfile:
    """One operator inside a delegate, measured by the delegate's runtime."""

    #: What the backend calls it.
    name: str
    times: Times
    #: Its key in the debug map's `operators`, if it has one.
    key: int | str | None = None
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True)
class InstructionProfile:
    """One instruction of the method."""

    position: int
    #: What it calls: "aten::add.out", "delegate 0", "MoveCall".
    calls: str
    times: Times
    #: Seconds from the beginning of the call, for each call.
    starts: tuple[float, ...] = ()
    #: Who made the delegate that it calls: "delegatekit-NAME 0.1.0", or the delegate id; "" for others.
    made_by: str = ""
    origin: Origin = field(default_factory=Origin)
    #: Of the delegate that it calls, in the order in which they run; empty if its runtime does not tell.
    operators: tuple[OperatorProfile, ...] = ()
    #: What the compiler of the delegate that it calls expects on the device; nothing of it was measured.
    estimate: Estimate | None = None
