"""ETDumps in the format of ExecuTorch's runtime, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from delegatekit_toolkit.etdump import EXECUTE, IDENTIFIER, EtDump, Event, ProfileEvent, RunData
from delegatekit_toolkit.flatbuffer import serialize


def operator(position: int, kernel: str, start: int, end: int) -> list[ProfileEvent]:
    """The event of an instruction that calls a kernel: "atan.out"."""
    return [
        ProfileEvent(f"native_call_{kernel}", 0, position, start_time=start + 1, end_time=end - 1),
        ProfileEvent("OPERATOR_CALL", 0, position, start_time=start, end_time=end),
    ]


def delegate(position: int, start: int, end: int, **inside: tuple[int, int]) -> list[ProfileEvent]:
    """The event of an instruction that calls a delegate, with the operators inside: "7" has a number as its id."""
    return [
        *(
            ProfileEvent("conv", 0, position, int(name[1:]), start_time=first, end_time=last)
            if name[1:].isdigit()
            else ProfileEvent(None, 0, position, delegate_debug_id_str=name, start_time=first, end_time=last)
            for name, (first, last) in inside.items()
        ),
        ProfileEvent("DELEGATE_CALL", 0, position, start_time=start, end_time=end),
    ]


def call(events: Sequence[ProfileEvent], start: int, end: int) -> RunData:
    """The block of one call of a method."""
    whole = ProfileEvent(EXECUTE, -1, 0, start_time=start, end_time=end)
    return RunData("Execute", events=[Event(event) for event in (*events, whole)])


def dump(*runs: RunData) -> bytes:
    """The file: after the size of the rest comes a flatbuffer that is aligned by its place in the file."""
    data = serialize(EtDump(run_data=list(runs)), IDENTIFIER)
    (root,) = struct.unpack_from("<I", data)
    rest = struct.pack("<I4sI", root + 4, IDENTIFIER, 0) + data[8:]
    return struct.pack("<I", len(rest)) + rest
