"""The expected cost of a delegate on its device: figures of the vendor's compiler, not measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LayerEstimate:
    """One step of a delegate, as the vendor's compiler sees it."""

    #: The node that it computes; several steps may compute the same one.
    name: str
    #: The vendor's name of the operation.
    operator: str
    #: Seconds.
    latency: float
    #: Clock cycles, where the vendor counts them.
    cycles: int | None = None
    #: Number of multiplications, and the utilization of the multipliers, 0 to 1.
    macs: int = 0
    utilization: float = 0.0
    #: Memory -> bytes in use during the step.
    memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """The expected time of one call of a delegate, and its memory.

    The names of memories are the vendor's ("sram", "dram", "flash"); budgets use them, and "latency".
    """

    #: The source of the figures and the device: "compiler 2.1 for chip-x".
    source: str
    #: Seconds of one call.
    latency: float | None = None
    cycles: int | None = None
    macs: int | None = None
    #: Memory -> bytes needed while it runs: delegates run in turn, so the largest counts.
    memory: Mapping[str, int] = field(default_factory=dict)
    #: Memory -> bytes that it keeps: the sum over all delegates counts.
    storage: Mapping[str, int] = field(default_factory=dict)
    #: The steps in order.
    layers: tuple[LayerEstimate, ...] = ()


@dataclass(frozen=True)
class TargetInfo:
    """A device that a backend compiles for."""

    name: str
    #: A description for users, in one line.
    summary: str
    #: The options that select it.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Further options with which a host runs the compiled blobs, for verification, where a device needs none.
    on_host: Mapping[str, str] = field(default_factory=dict)
