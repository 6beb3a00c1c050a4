"""Vela's estimates for a compiled program: cycles, latency and memory, for the whole and for each operator.

These come from the compiler's model and are not measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegatekit_api.devices import Estimate, LayerEstimate
from delegatekit_toolkit.tosa.reader import result_names

from ..targets import Target


@dataclass(frozen=True)
class LayerPerformance:
    """One operator of the compiled program."""

    #: The TOSA tensor that it computes; several operators may compute one.
    name: str
    #: The compiler's name of the operator.
    operator: str
    #: Cycles until it is done, memory included, and those of the arithmetic alone.
    cycles: int
    npu_cycles: int
    macs: int
    #: Utilization of the multipliers, 0 to 1.
    utilization: float
    #: Bytes of SRAM in use while it runs.
    sram: int
    #: Memory ("Sram", "OffChipFlash", ...) -> cycles of its accesses.
    accesses: Mapping[str, int]


@dataclass(frozen=True)
class Performance:
    """The whole program. Sizes are bytes."""

    target: str
    system_config: str
    memory_mode: str
    #: Clock in Hz.
    clock: float
    cycles: int
    npu_cycles: int
    macs: int
    #: Utilization of the multipliers, 0 to 1.
    utilization: float
    #: Largest amount of SRAM in use, constants not counted.
    sram: int
    #: Largest amount of DRAM in use, constants not counted.
    dram: int
    #: Constants as stored, and the commands.
    constants: int
    commands: int
    #: Weights before they were compressed.
    weights: int
    npu_operators: int
    cpu_operators: int
    #: Memory -> cycles of all accesses, and bytes read and written.
    access_cycles: Mapping[str, int]
    bytes_read: Mapping[str, int]
    bytes_written: Mapping[str, int]
    layers: tuple[LayerPerformance, ...]

    @property
    def latency(self) -> float:
        """Seconds for one inference."""
        return self.cycles / self.clock

    @property
    def flash(self) -> int:
        """Bytes of constants and commands in flash."""
        return self.constants + self.commands

    def estimate(self, version: str) -> Estimate:
        """The figures that the core displays and checks against budgets; `version` is Vela's."""
        return Estimate(
            source=f"Vela {version} for {self.target}, {self.system_config}, {self.memory_mode}",
            latency=self.latency,
            cycles=self.cycles,
            macs=self.macs,
            memory={"sram": self.sram, "dram": self.dram},
            storage={"flash": self.flash},
            layers=tuple(
                LayerEstimate(
                    name=layer.name,
                    operator=layer.operator,
                    latency=layer.cycles / self.clock,
                    cycles=layer.cycles,
                    macs=layer.macs,
                    utilization=layer.utilization,
                    memory={"sram": layer.sram},
                )
                for layer in self.layers
            ),
        )


#: Memories that are inside the accelerator.
_INTERNAL = ("shram", "lutram")


def collect(model: Any, tosa: bytes, target: Target, system_config: str, memory_mode: str, clock: float) -> Performance:
    """Read the compiler's report and its database. `tosa` is the compiled file, which has the names."""
    report = model.perf_report
    memories = {name: memory for name, memory in report.memories.items() if name not in _INTERNAL}
    constants = len(model.read_only.data)
    used = {name: memory.peakUsage for name, memory in memories.items()}
    # The report counts constants by memory: with the activations if they have no memory of their own.
    home = next((name for name in ("OnChipFlash", "OffChipFlash", "Dram", "Sram") if name in used), "Sram")
    used[home] = max(0, used.get(home, 0) - report.readOnlyPeakUsage)
    return Performance(
        target=target.name,
        system_config=system_config,
        memory_mode=memory_mode,
        clock=clock,
        cycles=report.totalCycles,
        npu_cycles=report.npuCycles,
        macs=report.macCount,
        utilization=_utilization(report.macCount, report.totalCycles, target),
        sram=used.get("Sram", 0),
        dram=used.get("Dram", 0),
        constants=constants,
        commands=len(model.command_stream),
        weights=report.originalWeights,
        npu_operators=report.npuOps,
        cpu_operators=report.cpuOps,
        access_cycles={name: memory.totalAccessCycles for name, memory in memories.items()},
        bytes_read=_total(memories, "bytesRead"),
        bytes_written=_total(memories, "bytesWritten"),
        layers=_layers(model.opt_database.tables, result_names(tosa), target),
    )


def _utilization(macs: int, cycles: int, target: Target) -> float:
    return macs / (cycles * target.macs) if cycles else 0.0


def _total(memories: Mapping[str, Any], field: str) -> dict[str, int]:
    return {
        name: sum(getattr(access, field) for access in memory.accesses.values()) for name, memory in memories.items()
    }


def _layers(tables: Mapping[str, Any], names: Sequence[str], target: Target) -> tuple[LayerPerformance, ...]:
    """The rows of the database in the order of execution; an operation inside another operator has 0 cycles."""
    sources = {row["id"]: int(row["ext_key"]) for row in _rows(tables["source"])}
    known = set(names)
    layers = []
    for row in _rows(tables["perf"]):
        name = row["name"]
        position = sources.get(row["source_id"], -1)
        if name not in known and 0 <= position < len(names):
            name = names[position]
        cycles, macs = int(row["op_cycles"]), int(row["mac_count"])
        accesses = {
            key.removesuffix("_ac"): int(value)
            for key, value in row.items()
            if key.endswith("_ac") and not key.startswith(_INTERNAL)
        }
        layers.append(
            LayerPerformance(
                name=name,
                operator=row["operator"],
                cycles=cycles,
                npu_cycles=int(row["npu_cycles"]),
                macs=macs,
                utilization=_utilization(macs, cycles, target),
                sram=int(row["staging_usage"]),
                accesses=accesses,
            )
        )
    return tuple(layers)


def _rows(table: Any) -> list[dict[str, str]]:
    return [dict(zip(table.header, row, strict=True)) for row in table.data]
