"""A profile as files: a trace for Perfetto and chrome://tracing, and a table of comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

from delegatekit_toolkit.json_text import to_json

from .measured import InstructionProfile
from .profile import Profile

#: Chrome's trace format counts in microseconds.
_MICRO: Final = 1e6
#: Rows of the trace: instructions, and operators inside delegates.
_ROWS: Final = {1: "instructions", 2: "operators inside delegates"}


def trace(profile: Profile) -> str:
    """All measured calls one after the other, in Chrome's trace format (JSON).

    Operators inside delegates were measured in other calls: they are drawn one after the other from the beginning of
    their delegate's, each as long as its median.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"method {profile.method}"}}
    ]
    events += [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": {"name": name}} for row, name in _ROWS.items()
    ]
    begin = 0.0
    for run in range(min((len(item.starts) for item in profile.instructions), default=0)):
        ends = [begin]
        for item in profile.instructions:
            start = begin + item.starts[run]
            events.append(_event(item.calls, start, item.times.wall[run], 1, item))
            ends.append(start + item.times.wall[run])
            for operator in item.operators:
                events.append(_event(operator.name, start, operator.times.median, 2, operator))
                start += operator.times.median
        begin = max(ends)
    return to_json({"traceEvents": events, "displayTimeUnit": "ms"}, indent=None)


def table(profile: Profile) -> str:
    """The profile's records as comma-separated values, with a line of names."""
    text = io.StringIO()
    records: Iterator[dict[str, Any]] = profile.records()
    first = next(records, None)
    if first is not None:
        writer = csv.DictWriter(text, list(first))
        writer.writeheader()
        writer.writerows((first, *records))
    return text.getvalue()


def _event(name: str, start: float, seconds: float, row: int, item: Any) -> dict[str, Any]:
    facts = {"modules": item.origin.modules, "sources": item.origin.sources, "operators": item.origin.operators}
    if isinstance(item, InstructionProfile):
        facts["instruction"] = item.position
    return {
        "ph": "X",
        "name": name,
        "ts": start * _MICRO,
        "dur": seconds * _MICRO,
        "pid": 1,
        "tid": row,
        "args": {key: value for key, value in facts.items() if value not in ((), "")},
    }
