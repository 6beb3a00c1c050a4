"""Reads an ETDump, ExecuTorch's trace of its runs on a device, as a profile of a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from delegatekit.errors import UnknownMethodError
from delegatekit.files import Source, open_view
from delegatekit.pte import content_key, naming
from delegatekit.reading import open_program
from delegatekit_api import DelegateKitError, FormatError
from delegatekit_api.devices import Estimate
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.etdump import EXECUTE, ProfileEvent, RunData, read_runs, times_of

from ..etrecord.reading import Record
from .inside import operator_profiles
from .measured import InstructionProfile, Times
from .origins import Origins
from .profile import Profile

#: Events by their names: a call of a delegate, of a kernel, and the kernel itself inside that.
_DELEGATE: Final = "DELEGATE_CALL"
_OPERATOR: Final = "OPERATOR_CALL"
_KERNEL: Final = "native_call_"
_LOAD: Final = "Program::load_method"
#: Instructions without events of the runtime.
_SILENT: Final = ("MoveCall", "JumpFalseCall", "FreeCall")
_HINT: Final = "give the program that ran: the same file, or its debug map"


@dataclass(frozen=True)
class _Call:
    """One execution of a method: the event that encloses it, and the events within, by instruction."""

    whole: ProfileEvent
    events: Mapping[int, Sequence[ProfileEvent]]


@dataclass(frozen=True)
class _Method:
    """The expectations about a method of the program: callees of instructions, makers and estimates of delegates."""

    name: str
    calls: tuple[str, ...]
    owners: Mapping[int, str]
    estimates: Mapping[int, Estimate] = field(default_factory=dict)
    #: Of the program; None if only its debug map is known.
    key: str | None = None


def read_etdump(
    source: Source,
    program: Source | None = None,
    *,
    method: str | None = None,
    debug_map: Mapping[str, Any] | Record | None = None,
    warm_up: int = 0,
    ticks_per_second: float = 1e9,
) -> Profile:
    """The profile of a method from an ETDump that ExecuTorch's runtime wrote, on any device.

    Args:
        source: the ETDump.
        program: the .pte (or .bpte) that ran. Without it, instructions have the names in the debug map or the dump.
        method: of the program; by default the one whose instructions the dump has, "forward" if several fit.
        debug_map: of the same program, or its ETRecord, as for `profile`.
        warm_up: calls that are reported apart; at least one is left.
        ticks_per_second: of the device's clock. Hosts and phones count nanoseconds, others perhaps cycles.

    Raises FormatError for a damaged file, and DelegateKitError for a dump or a debug map of another program.
    """
    if not 0 < ticks_per_second < float("inf") or warm_up < 0:
        raise DelegateKitError(f"takes a positive clock and no negative warm-up; got {ticks_per_second}, {warm_up}")
    where = str(source) if isinstance(source, str | Path) else "ETDump"
    with naming(source):
        runs = read_runs(bytes(open_view(source)))
        found = [call for run in runs for call in _calls(run)]
        if not found:
            raise FormatError("has no call of a method", hint="run the method before the dump is written")
    chosen, fitting = _chosen(found, list(_methods(program, debug_map, found, method)), method, where)
    loads = [event for run in runs for event in times_of(run) if event.name == _LOAD]
    origins = Origins(debug_map, chosen.name, chosen.calls, chosen.key)
    return _Reader(chosen, origins, 1.0 / ticks_per_second, where).profile(fitting, loads, warm_up)


def _calls(run: RunData) -> Iterator[_Call]:
    """The calls of a block. Events are ordered by their end."""
    within: dict[int, list[ProfileEvent]] = {}
    for event in times_of(run):
        if event.end_time < event.start_time:
            raise FormatError(f"event {event.name or event.delegate_debug_id_str} ends before it begins")
        if event.name == EXECUTE:
            yield _Call(event, within)
            within = {}
        elif event.instruction_id >= 0 and event.chain_index >= 0:
            within.setdefault(event.instruction_id, []).append(event)


def _methods(
    program: Source | None, debug_map: Mapping[str, Any] | Record | None, found: Sequence[_Call], wanted: str | None
) -> Iterator[_Method]:
    """The methods that may have run."""
    if program is not None:
        opened = open_program(program)
        for known in opened.methods.values():
            called = {
                position: known.delegates[item.delegate]
                for position, item in enumerate(known.instructions)
                if item.delegate is not None
            }
            yield _Method(
                known.name,
                tuple(item.calls for item in known.instructions),
                {position: delegate.made_by for position, delegate in called.items()},
                {position: delegate.estimate for position, delegate in called.items() if delegate.estimate},
                content_key(opened.file),
            )
    elif isinstance(debug_map, Record):
        for name in debug_map.methods:
            yield _Method(name, _named(found), {})
    elif debug_map is not None:
        for name in debug_map:
            yield _Method(name, Origins.calls_of(debug_map, name), {})
    else:
        yield _Method(wanted or "of an unknown name", _named(found), {})


def _named(found: Sequence[_Call]) -> tuple[str, ...]:
    """The callees of the instructions, as far as the dump alone shows them."""
    names: dict[int, str] = {}
    for call in found:
        for position, events in call.events.items():
            kernels = [str(event.name) for event in events if str(event.name).startswith(_KERNEL)]
            if any(map(_is_delegate, events)):
                names[position] = "delegate"
            else:
                names[position] = kernels[0].removeprefix(_KERNEL) if kernels else names.get(position, "operator")
    # Each instruction without events is a jump or a move: a damaged number would give very many.
    last = max(names, default=-1)
    if last > 1000 + 10 * len(names):
        raise FormatError(f"names instruction {last}, but has only {len(names)} in all", hint="it is damaged")
    return tuple(names.get(position, _SILENT[0]) for position in range(last + 1))


def _is_delegate(event: ProfileEvent) -> bool:
    return event.name == _DELEGATE or event.delegate_debug_id_int >= 0 or bool(event.delegate_debug_id_str)


def _chosen(
    found: Sequence[_Call], methods: Sequence[_Method], wanted: str | None, where: str
) -> tuple[_Method, list[_Call]]:
    """The method, and the calls of it."""
    asked = [item for item in methods if wanted in (None, item.name)]
    if not asked:
        raise UnknownMethodError(f"there is no method {wanted!r} (methods: {', '.join(item.name for item in methods)})")
    asked.sort(key=lambda item: item.name != "forward")
    for item in asked:
        fitting = [call for call in found if _mismatch(call, item) is None]
        if fitting:
            return item, fitting
    what = f"is no dump of method {asked[0].name} of this program: {_mismatch(found[0], asked[0])}"
    raise DelegateKitError(what, where=where, hint=_HINT)


def _mismatch(call: _Call, method: _Method) -> str | None:
    """The reason why a call cannot be one of this method, None if it may be."""
    names = method.calls
    for position, events in call.events.items():
        if position >= len(names):
            return f"instruction {position} ran, the program has {len(names)}"
        known = names[position]
        is_delegate = known.startswith("delegate")
        for event in events:
            name = str(event.name or "")
            kernel = name.removeprefix(_KERNEL) if name.startswith(_KERNEL) else None
            told = "a delegate" if _is_delegate(event) else kernel or ("an operator" if name == _OPERATOR else "")
            if told and (_is_delegate(event) != is_delegate or kernel not in (None, known.rpartition("::")[2])):
                return f"instruction {position} is {told} in the dump, {known} in the program"
    if "JumpFalseCall" in names:
        return None  # some instructions are left out in some calls
    absent = (index for index, name in enumerate(names) if name not in _SILENT and index not in call.events)
    left_out = next(absent, None)
    return None if left_out is None else f"instruction {left_out}, {names[left_out]}, did not run"


class _Reader:
    def __init__(self, method: _Method, origins: Origins, seconds: float, name: str) -> None:
        self._method = method
        self._origins = origins
        self._seconds = seconds
        self._name = name

    def profile(self, found: Sequence[_Call], loads: Sequence[ProfileEvent], warm_up: int) -> Profile:
        """The profile of these calls."""
        first = min(warm_up, len(found) - 1)
        counted = found[first:]
        return Profile(
            self._method.name,
            self._times([call.whole for call in counted]),
            self._times([call.whole for call in found[:first]]),
            tuple(self._instruction(position, counted) for position in range(len(self._method.calls))),
            recorded=self._name,
            load=self._times(loads),
        )

    def _times(self, events: Sequence[ProfileEvent]) -> Times:
        return Times(tuple(self._duration(event) for event in events))

    def _duration(self, event: ProfileEvent) -> float:
        return (event.end_time - event.start_time) * self._seconds

    def _instruction(self, position: int, found: Sequence[_Call]) -> InstructionProfile:
        walls, starts, inside = [], [], []
        for call in found:
            events = call.events.get(position, ())
            whole = [event for event in events if event.name in (_DELEGATE, _OPERATOR)]
            # A runtime may report kernels alone. Repeated runs are summed up.
            whole = whole or [event for event in events if str(event.name or "").startswith(_KERNEL)]
            walls.append(sum(map(self._duration, whole)))
            begin = min((event.start_time for event in whole), default=call.whole.start_time)
            starts.append(max(0, begin - call.whole.start_time) * self._seconds)
            inside.append([self._operator(event) for event in events if event not in whole and _is_delegate(event)])
        name = self._method.calls[position]
        return InstructionProfile(
            position,
            name,
            Times(tuple(walls)),
            tuple(starts),
            self._method.owners.get(position, ""),
            self._origins.of_instruction(position),
            operator_profiles(inside, position, self._origins),
            self._method.estimates.get(position),
        )

    def _operator(self, event: ProfileEvent) -> OperatorTime:
        if event.delegate_debug_id_int >= 0:
            key: int | str = event.delegate_debug_id_int
            return OperatorTime(event.name or str(key), self._duration(event), key)
        key = str(event.delegate_debug_id_str)
        return OperatorTime(key, self._duration(event), key)
