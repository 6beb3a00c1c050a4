"""The file of `delegatekit tune`: the measurements of programs, and the fastest placement of each."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch

from delegatekit.files import open_file, write_text
from delegatekit.plugins import LoadedBackend, warn
from delegatekit.version import __version__
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import decoded, parse_object, plain, said, to_json
from delegatekit_toolkit.number_text import human_time

#: Version of the file's format.
FORMAT: Final = 1
#: A mixture is chosen if it is faster than the best of the others by more than this fraction: less is noise.
MARGIN: Final = 0.02

_HINT: Final = "`delegatekit tune` writes such files"


@dataclass(frozen=True)
class Candidate:
    """One way to place a program, and the time of a call."""

    #: "NAME alone", "NAME, then OTHER", "runtime alone", "mixture 1".
    name: str
    #: The backends that it is lowered with, in priority order.
    backends: tuple[str, ...]
    #: Seconds of a call of each method, summed up: the median of the calls.
    seconds: float
    #: Method -> node -> backend; None for the default placement of lowering with the backends.
    placement: Mapping[str, Mapping[str, str]] | None = None
    #: The operators that are not decomposed, or backends whose requests apply; None for all.
    keep: tuple[str, ...] | None = None


@dataclass(frozen=True)
class UnitTimes:
    """The time of a unit alone, on each of its runners ("" is the runtime); equal units of a program are one."""

    signature: str
    count: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Tuned:
    """The measurements of one program."""

    #: Backend -> its distribution and version, and the options that it was measured with.
    versions: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]
    candidates: tuple[Candidate, ...]
    units: Mapping[str, UnitTimes] = field(default_factory=dict)
    #: Backend -> seconds of a border, which two neighbors save if both are there.
    borders: Mapping[str, float] = field(default_factory=dict)
    #: Backend -> the reason why it was left out.
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def chosen(self) -> Candidate:
        """The fastest; a mixture only if it is faster by more than the noise. Equal ones: the first."""
        plain_ones = [item for item in self.candidates if item.placement is None]
        best = min(plain_ones, key=lambda item: item.seconds)
        mixture = min(self.candidates, key=lambda item: item.seconds)
        return mixture if mixture.seconds < best.seconds * (1 - MARGIN) else best

    def among(self, backends: Collection[str]) -> Tuned:
        """The same among those candidates that need no other backends."""
        return replace(self, candidates=tuple(c for c in self.candidates if set(c.backends) <= set(backends)))

    def text(self, clock: str) -> str:
        """The candidates, the fastest first, each relative to the chosen one."""
        chosen = self.chosen
        lines = []
        for item in sorted(self.candidates, key=lambda item: item.seconds):
            ratio = item.seconds / chosen.seconds if chosen.seconds else 1.0
            mark = "*" if item is chosen else " "
            lines.append(f"{mark} {human_time(item.seconds):>10} {clock}  {ratio:6.2f}x  {item.name}")
        lines += [f"  {name} was left out: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Measurements:
    """Measurements of programs on one machine, by the programs' digests."""

    #: The clock of the seconds: "CPU" or "wall".
    clock: str
    machine: Mapping[str, str]
    programs: Mapping[str, Tuned]

    def __str__(self) -> str:
        return "\n".join(tuned.text(self.clock) for tuned in self.programs.values())

    def units_text(self) -> str:
        """The time of each unit on each of its runners, the fastest first; the longest units first."""
        units = [unit for tuned in self.programs.values() for unit in tuned.units.values() if unit.seconds]
        lines = []
        for unit in sorted(units, key=lambda unit: -unit.count * min(unit.seconds.values())):
            fastest = sorted(unit.seconds.items(), key=lambda item: item[1])
            times = ", ".join(f"{name or 'runtime'} {human_time(seconds)}" for name, seconds in fastest)
            lines += [f"{unit.count} x {unit.signature}", f"    {times}"]
        return "\n".join(lines)

    def of(self, digest: str) -> Tuned:
        """The measurements of a program. Raises FormatError if there are none."""
        if digest not in self.programs:
            raise FormatError(
                "the measurements are of other programs: this one (its operators and their shapes) is not "
                f"among the {len(self.programs)}",
                where="measurements",
                hint="tune it: delegatekit tune MODEL -b NAMES -o FILE",
            )
        return self.programs[digest]

    def joined(self, other: Measurements) -> Measurements:
        """These and others of the same machine and clock, which replace those of the same programs."""
        if (self.clock, self.machine) != (other.clock, other.machine):
            raise FormatError(
                f"holds measurements of another machine or clock: {_machine_text(self)}, not {_machine_text(other)}",
                where="measurements",
                hint="write to another file",
            )
        return Measurements(self.clock, self.machine, {**self.programs, **other.programs})

    def save(self, path: str | Path) -> None:
        """Write them as JSON."""
        write_text(Path(path), to_json({"delegatekit_measurements": FORMAT, **plain(self)}) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Measurements:
        """Read them. Raises FormatError for another file, another version or damaged content."""
        where = str(path)
        with open_file(Path(path)) as file:
            data = file.read()
        content = parse_object(data, where, hint=_HINT)
        if "delegatekit_measurements" not in content:
            raise FormatError("holds no measurements", where=where, hint=_HINT)
        found = content.pop("delegatekit_measurements")
        if found != FORMAT:
            raise FormatError(f"has format {said(found)}, this version reads {FORMAT}", where=where, hint="tune again")
        measurements = decoded(cls, content, where, hint="tune again")
        fault = _fault(measurements)
        if fault is not None:
            raise FormatError(f"is damaged: {fault}", where=where, hint="tune again")
        return measurements


def machine_facts() -> dict[str, str]:
    """The facts besides the program that times depend on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "delegatekit": __version__,
    }


def version_of(backend: LoadedBackend) -> str:
    """ "delegatekit-NAME 0.1.0"."""
    return f"{backend.distribution} {backend.version}"


def check_fitting(found: Measurements, tuned: Tuned, backends: Mapping[str, LoadedBackend]) -> None:
    """Raise FormatError for measurements of other versions of the backends; warn of another machine's."""
    for name, backend in backends.items():
        if tuned.versions.get(name) != version_of(backend):
            raise FormatError(
                f"were made with {tuned.versions.get(name, f'no {name}')}, here is {version_of(backend)}",
                where="measurements",
                hint="another version may take other operators: tune again",
            )
    here = machine_facts()
    differ = [
        f"{key} {found.machine.get(key)}, not {value}" for key, value in here.items() if found.machine.get(key) != value
    ]
    if differ:
        warn(f"the measurements are of another machine ({'; '.join(differ)}): what is fast there may be slow here")


def _machine_text(found: Measurements) -> str:
    return f"{', '.join(f'{key} {value}' for key, value in found.machine.items())}, {found.clock} time"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def _fault(found: Measurements) -> str | None:
    """The first value that no measurement gives."""
    if found.clock not in ("CPU", "wall"):
        return f"clock {said(found.clock)}"
    for tuned in found.programs.values():
        if all(candidate.placement is not None for candidate in tuned.candidates):
            return "no candidate is of a single backend"
        times = [tuned.borders, *(unit.seconds for unit in tuned.units.values())]
        times += [{candidate.name: candidate.seconds} for candidate in tuned.candidates]
        for name, seconds in (item for each in times for item in each.items()):
            if seconds < 0:
                return f"{name or 'runtime'} is {seconds:g}, not a time"
    return None
