"""Profiling events of an ETDump, as ExecuTorch 1.5 writes it; nothing else of it is read."""

from __future__ import annotations

import struct
from typing import Final

from delegatekit_api import FormatError

from .flatbuffer import Table, deprecated, i32, parse, string, tables, u32, u64
from .flatbuffer import ref as table

#: File identifier of an ETDump.
IDENTIFIER = b"ED00"
#: The fields before the data: size without this number, root table's position, identifier.
_START: Final = struct.Struct("<II4s")
_SIZE: Final = 4
#: The event that encloses one call of a method.
EXECUTE = "Method::execute"


class ProfileEvent(Table):
    """A timed event. Times are nanoseconds on hosts with a clock of the C++ library."""

    name: str | None = string()
    chain_index: int = i32()
    #: Position of the instruction in its chain; -1: none.
    instruction_id: int = i32(-1)
    #: The delegate's identifier of its operator: a number (-1: none) or a text.
    delegate_debug_id_int: int = i32(-1)
    delegate_debug_id_str: str | None = string()
    delegate_debug_metadata: None = deprecated()
    start_time: int = u64()
    end_time: int = u64()


class Event(Table):
    """One event; those without `profile_event` are skipped."""

    profile_event: ProfileEvent | None = table(lambda: ProfileEvent)


class RunData(Table):
    """The events of one block of runs, in the order in which they ended."""

    name: str | None = string()
    bundled_input_index: int = i32(-1)
    allocators: None = deprecated()
    events: list[Event] | None = tables(lambda: Event)


class EtDump(Table):
    """The root table."""

    version: int = u32()
    run_data: list[RunData] | None = tables(lambda: RunData)


def read_events(data: bytes) -> list[ProfileEvent]:
    """All events with times, in the order of the file. Raises FormatError if the data is not an ETDump."""
    return [event for run in read_runs(data) for event in times_of(run)]


def times_of(run: RunData) -> list[ProfileEvent]:
    """The events of a block that have times."""
    return [event.profile_event for event in run.events or () if event.profile_event is not None]


def read_runs(data: bytes) -> list[RunData]:
    """The blocks of the file, at least one. Raises FormatError if the data is not an ETDump."""
    if len(data) < _START.size:
        raise FormatError(f"has {len(data)} bytes, too few for an ETDump", where="ETDump")
    # The table's position counts from after the size, but alignment is relative to the start of the file.
    size, place, identifier = _START.unpack_from(data)
    if size > len(data) - _SIZE:
        raise FormatError(f"has {len(data) - _SIZE} of {size} bytes: it was cut off", where="ETDump")
    found = parse(EtDump, struct.pack("<I4s", (place + _SIZE) & 0xFFFFFFFF, identifier) + data[8:], (IDENTIFIER,))
    if not found.run_data:
        raise FormatError("has no runs", where="ETDump")
    return found.run_data
