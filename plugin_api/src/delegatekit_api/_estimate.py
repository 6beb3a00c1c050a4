"""What a delegate is expected to cost on its device: figures of the vendor's compiler, not measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LayerEstimate:
    """One step of a delegate, as the vendor's compiler sees it."""

    #: The node that it computes; several steps may compute one.
    name: str
    #: The vendor's name of the operation.
    operator: str
    #: Seconds.
    latency: float
    #: Clock cycles, where the vendor counts them.
    cycles: int | None = None
    #: Multiplications, and the part of the multipliers' time that they fill, 0 to 1.
    macs: int = 0
    utilization: float = 0.0
    #: Memory -> bytes in use meanwhile.
    memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """What one call of a delegate takes, and what it keeps.

    The names of memories are the vendor's ("sram", "dram", "flash"); budgets use them, and "latency".
    """

    #: Who says so, for what: "compiler 2.1 for chip-x".
    source: str
    #: Seconds of one call.
    latency: float | None = None
    cycles: int | None = None
    macs: int | None = None
    #: Memory -> bytes needed while it runs: delegates take turns, so the largest counts.
    memory: Mapping[str, int] = field(default_factory=dict)
    #: Memory -> bytes that it keeps: all delegates together count.
    storage: Mapping[str, int] = field(default_factory=dict)
    #: The steps in order.
    layers: tuple[LayerEstimate, ...] = ()


@dataclass(frozen=True)
class TargetInfo:
    """A device that a backend compiles for."""

    name: str
    #: What a user wants to know of it, in one line.
    summary: str
    #: The options that choose it.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Options beside these with which a host runs what is compiled for it: for verification, where a device needs none.
    on_host: Mapping[str, str] = field(default_factory=dict)
