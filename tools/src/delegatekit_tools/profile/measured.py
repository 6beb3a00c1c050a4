"""The measurements of instructions and operators: figures of several calls, with their median and spread."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Final

from delegatekit_api.devices import Estimate

#: The word for a module among its own parts.
ITSELF: Final = "itself"


@dataclass(frozen=True)
class Times:
    """Seconds of one item, one figure for each call."""

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
    """The source of an item of the file, according to the debug map; empty without one."""

    operators: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    #: "model.py:12, in forward"
    sources: tuple[str, ...] = ()
    #: Its place in the tree of modules: "body.0", or "body.0, 1" for what two parts of `body` have in one; "" for the
    #: model itself.
    module: str = ""


@dataclass(frozen=True)
class OperatorProfile:
    """One operator inside a delegate, measured by the delegate's runtime."""

    #: The backend's name of it.
    name: str
    times: Times
    #: Its key in the debug map's `operators`, if it has one.
    key: int | str | None = None
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True)
class InstructionProfile:
    """One instruction of the method."""

    position: int
    #: The callee: "aten::add.out", "delegate 0", "MoveCall".
    calls: str
    times: Times
    #: Seconds from the beginning of the call, for each call.
    starts: tuple[float, ...] = ()
    #: The maker of the called delegate: "delegatekit-NAME 0.1.0", or the delegate id; "" for others.
    made_by: str = ""
    origin: Origin = field(default_factory=Origin)
    #: The operators of the called delegate, in execution order; empty if its runtime does not report them.
    operators: tuple[OperatorProfile, ...] = ()
    #: The compiler's estimate of the called delegate on the device; nothing of it was measured.
    estimate: Estimate | None = None
