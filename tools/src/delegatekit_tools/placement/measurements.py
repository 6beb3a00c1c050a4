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
FORMAT: Final = 2
#: Something is chosen in place of the best single backend if it is faster by more than this fraction: less is noise.
MARGIN: Final = 0.02
#: A backend whose time is an estimate is chosen in place of a measured one if it is faster by more than this fraction.
DOUBT: Final = 0.2

_HINT: Final = "`delegatekit tune` writes such files"


@dataclass(frozen=True)
class Candidate:
    """One way to place a program, and the time of a call."""

    #: "NAME alone", "NAME, then OTHER", "runtime alone", "mixture 1".
    name: str
    #: The backends that it is lowered with, in priority order.
    backends: tuple[str, ...]
    #: Seconds of a call of each method, summed up: the median of calls in rounds with others; the least of the calls
    #: of one that is far behind the fastest.
    seconds: float
    #: Method -> node -> backend; None for the default placement of lowering with the backends.
    placement: Mapping[str, Mapping[str, str]] | None = None
    #: The operators that are not decomposed, or backends whose requests apply; None for all.
    keep: tuple[str, ...] | None = None
    #: The number of delegates: without any, the runtime computes everything.
    delegates: int = 0
    #: The reason why the time is an estimate; empty if it was measured in the runtime that files are for.
    estimate: str = ""

    @property
    def is_single(self) -> bool:
        """True for one backend with what it takes by itself, and for the runtime alone."""
        return self.placement is None and len(self.backends) <= 1


@dataclass(frozen=True)
class Verification:
    """The fastest candidate of several backends against the fastest single one, in rounds of a process of their own."""

    candidate: str
    against: str
    #: The median over the rounds of the candidate's time divided by the other's, and what it does not exceed with 97 %
    #: confidence: ever closer to it with more rounds.
    ratio: float
    bound: float
    rounds: int

    @property
    def holds(self) -> bool:
        """True if the candidate is faster by more than the margin, and surely faster."""
        return self.ratio < 1 - MARGIN and self.bound < 1

    def __str__(self) -> str:
        found = f"{self.candidate} takes {self.ratio:.3f} times as long as {self.against}"
        found = f"{found} (median of {self.rounds} rounds, surely below {self.bound:.3f})"
        if self.holds:
            return f"{found}: chosen"
        reason = f"less than {MARGIN:.0%} faster" if self.ratio >= 1 - MARGIN else "not surely faster"
        return f"{found}: {reason}, not chosen"


@dataclass(frozen=True)
class UnitTimes:
    """The time of a unit alone, on each of its runners ("" is the runtime); equal units of a program are one."""

    signature: str
    count: int
    seconds: Mapping[str, float]
    #: The runners whose times are estimates.
    estimates: tuple[str, ...] = ()


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
    #: None if there was only one way, or nothing came close to the best single backend.
    verification: Verification | None = None

    @property
    def chosen(self) -> Candidate:
        """The best single candidate, unless another one was verified to be faster. Equal ones: the first."""
        verified = self.verification
        if verified is not None and verified.holds:
            for item in self.candidates:
                if item.name == verified.candidate:
                    return item
        return best_single(self.candidates)

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
            guess = f"  (estimate: {item.estimate})" if item.estimate else ""
            lines.append(f"  {mark} {human_time(item.seconds):>10} {clock}  {ratio:6.2f}x  {item.name}{guess}")
        if self.verification is not None:
            lines.append(f"    {self.verification}")
        lines += [f"    {name} was left out: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


def best_single(candidates: Collection[Candidate]) -> Candidate:
    """The fastest backend alone; the runtime alone only where it was measured to be faster than all of them.

    A backend whose time is an estimate is taken only if it seems much faster than those that were measured.
    """
    singles = [item for item in candidates if item.is_single]
    backends = [item for item in singles if item.delegates]
    alone = [item for item in singles if not item.delegates]
    measured = [item for item in backends if not item.estimate]
    best = min(measured or backends or alone, key=lambda item: item.seconds)
    guess = min(backends, key=lambda item: item.seconds, default=best)
    if guess.seconds < best.seconds * (1 - DOUBT):
        best = guess
    for item in alone:
        if not (item.estimate or best.estimate) and item.seconds < best.seconds * (1 - MARGIN):
            best = item
    return best


@dataclass(frozen=True)
class Measurements:
    """Measurements of programs on one machine, by the programs' digests."""

    #: The clock of the seconds: "CPU" or "wall".
    clock: str
    machine: Mapping[str, str]
    programs: Mapping[str, Tuned]

    def __str__(self) -> str:
        place = self.machine.get("runtime", "an unknown runtime")
        threads = self.machine.get("threads", "1")
        head = f"in {place}, {threads} thread{'' if threads == '1' else 's'}:"
        return "\n".join([head, *(tuned.text(self.clock) for tuned in self.programs.values())])

    @property
    def nothing_delegated(self) -> bool:
        """True if the fastest way of a program is without any delegate."""
        return any(not tuned.chosen.delegates for tuned in self.programs.values())

    def units_text(self) -> str:
        """The time of each unit on each of its runners, the fastest first; the longest units first."""
        units = [unit for tuned in self.programs.values() for unit in tuned.units.values() if unit.seconds]
        lines = []
        for unit in sorted(units, key=lambda unit: -unit.count * min(unit.seconds.values())):
            fastest = sorted(unit.seconds.items(), key=lambda item: item[1])
            times = ", ".join(
                f"{name or 'runtime'} {'about ' if name in unit.estimates else ''}{human_time(seconds)}"
                for name, seconds in fastest
            )
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


def machine_facts(runtime: Mapping[str, str]) -> dict[str, str]:
    """The facts besides the program that times depend on; `runtime` are those of the runtime that took them."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "delegatekit": __version__,
        **runtime,
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
    here = machine_facts({key: found.machine[key] for key in ("runtime", "threads") if key in found.machine})
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
        if not any(candidate.is_single for candidate in tuned.candidates):
            return "no candidate is of a single backend"
        times = [tuned.borders, *(unit.seconds for unit in tuned.units.values())]
        times += [{candidate.name: candidate.seconds} for candidate in tuned.candidates]
        if tuned.verification is not None:
            times.append({tuned.verification.candidate: tuned.verification.ratio})
        for name, seconds in (item for each in times for item in each.items()):
            if seconds < 0:
                return f"{name or 'runtime'} is {seconds:g}, not a time"
    return None
