"""The profile of a method: plain data, a table, and flat records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from delegatekit.files import Source
from delegatekit.reading import open_program
from delegatekit_api import DelegateKitError

from .measured import InstructionProfile, Origin, Times
from .page import page
from .parts import Grouping, Part, parts_of
from .text import estimate_lines, milliseconds, rows_of, table_of, times_of, tree_of

#: The other way to show a profile.
Instructions: TypeAlias = Literal["instruction"]
_UNTRACED: Final = "give the debug map that `lower --debug-map` wrote, or an ETRecord; --by kernel needs neither"


@dataclass(frozen=True)
class Profile:
    """The time of one method, by instruction and operator."""

    method: str
    #: Whole calls, without measurements inside; the first ones separately.
    total: Times
    warm_up: Times
    instructions: tuple[InstructionProfile, ...]
    #: The file that records the calls, if they were not measured here.
    recorded: str = ""
    #: The load times of the method, if recorded.
    load: Times = field(default_factory=lambda: Times(()))

    @property
    def measured(self) -> Times:
        """Calls whose instructions were measured: the sums of these."""
        walls = zip(*(item.times.wall for item in self.instructions), strict=True)
        cpus = zip(*(item.times.cpu for item in self.instructions), strict=True)
        return Times(tuple(map(sum, walls)), tuple(map(sum, cpus)))

    def parts(self, by: Grouping) -> Part:
        """The time of a call by "module", "kernel" (who runs it, and by what) or source "line", as a tree."""
        return parts_of(self.method, self.instructions, by)

    def text(self, *, rows: int | None = 30, in_order: bool = False, by: Grouping | Instructions | None = None) -> str:
        """A table of `rows` rows, None for all: the longest first, or in execution order.

        By "module", "kernel" or "line" it is a tree whose largest parts are opened; by "instruction", one row for each
        instruction and operator. None: by module where modules are known, else by kernel. Raises DelegateKitError for
        modules and lines that nothing tells.
        """
        by = by or ("module" if self._is_traced else "kernel")
        lines = [f"method {self.method}: {times_of(self.total)} a call, {len(self.total.wall)} calls"]
        if self.warm_up.wall:
            lines.append(f"before them: {', '.join(map(milliseconds, self.warm_up.wall))}")
        if self.recorded:
            lines += [f"loaded in {milliseconds(self.load.median)}"] if self.load.wall else []
            lines.append(f"recorded in {self.recorded}")
        else:
            lines.append(f"calls whose instructions are measured: {times_of(self.measured)}")
        if by == "instruction":
            found = rows_of(self.instructions)
            if not in_order:
                found.sort(key=lambda row: -row.times.median)
            lines += table_of(found, rows, self.measured.median)
        elif by in ("module", "line") and not self._is_traced:
            raise DelegateKitError(f"nothing tells a {by}", hint=_UNTRACED)
        else:
            lines += tree_of(self.parts(by), by, rows, in_order=in_order)
        if not self.recorded and any(item.operators for item in self.instructions):
            lines.append("operators inside delegates are measured in calls of their own, by the delegates' runtimes")
        lines += estimate_lines(self.instructions)
        return "\n".join(lines)

    @property
    def _is_traced(self) -> bool:
        """True if any modules or lines are known."""
        return any(item.origin.sources or item.origin.modules for item in self.instructions)

    def __str__(self) -> str:
        return self.text()

    def html(self, title: str = "Profile", file: Source | None = None) -> str:
        """One page: the graph colored by time, and all rows as a table; it needs no network.

        With the `file` (.pte or .bpte) the graph has the file's arrows; otherwise instructions stand in their order.
        """
        return page(self, title, None if file is None else open_program(file).methods[self.method])

    def records(self) -> Iterator[dict[str, Any]]:
        """A flat record for each instruction, and after it one for each operator inside its delegate.

        `pandas.DataFrame(profile.records())` makes a table of them.
        """
        for instruction in self.instructions:
            expected = None if instruction.estimate is None else instruction.estimate.latency
            yield _record(instruction.position, instruction.calls, "", instruction.times, instruction.origin, expected)
            for operator in instruction.operators:
                yield _record(instruction.position, instruction.calls, operator.name, operator.times, operator.origin)


def _record(
    position: int, calls: str, operator: str, times: Times, origin: Origin, expected: float | None = None
) -> dict[str, Any]:
    return {
        "instruction": position,
        "calls": calls,
        "operator": operator,
        "seconds": times.median,
        "spread": times.spread,
        "cpu_seconds": times.median_cpu,
        "runs": len(times.wall),
        "expected_on_device": expected,
        "module": _joined(origin.modules),
        "source": _joined(origin.sources),
        "aten": _joined(origin.operators),
    }


def _joined(names: Sequence[str]) -> str:
    return "; ".join(names)
