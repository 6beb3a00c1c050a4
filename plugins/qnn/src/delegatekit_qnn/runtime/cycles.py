"""Times of a run from the library's events: the cycles of each operation on the processor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.etdump import ProfileEvent

#: "Conv2d_1:OpId_23 (cycles)", and "Input OpId_2 (cycles)" for the processing of inputs and outputs.
_OPERATION: Final = re.compile(r"(?P<name>\w+)[: ]OpId_\d+ \(cycles\)")
_NUMBER: Final = re.compile(r"_\d+$")
#: The event with the time of the whole run, in microseconds.
_WHOLE: Final = "QNN (execute) time (us)"


def times_of(events: Sequence[ProfileEvent]) -> list[OperatorTime]:
    """The time of each operation: its share of the whole run, by cycles. The library reports only the total in seconds.

    The figures are differences of the events' times, whatever their units are.
    """
    told = {event.delegate_debug_id_str or "": event.end_time - event.start_time for event in events}
    operations = [
        (found["name"], event.end_time - event.start_time)
        for event in events
        if (found := _OPERATION.fullmatch(event.delegate_debug_id_str or ""))
    ]
    total, whole = sum(cycles for _, cycles in operations), told.get(_WHOLE, 0)
    return [
        OperatorTime(_NUMBER.sub("", name), whole * 1e-6 * cycles / total if total else 0.0, name)
        for name, cycles in operations
    ]
