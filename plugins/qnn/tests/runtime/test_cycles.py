"""The library's events of a run, and the times computed from them."""

from __future__ import annotations

import pytest

from delegatekit_qnn.runtime.cycles import times_of
from delegatekit_toolkit.etdump import ProfileEvent


def event(name: str | None, figure: int) -> ProfileEvent:
    return ProfileEvent(delegate_debug_id_str=name, start_time=5, end_time=5 + figure)


def test_operations_share_the_time_of_the_run_by_their_cycles() -> None:
    events = [
        event("Num times yield occured (count)", 3),
        event("Accelerator (execute) time (cycles)", 100),
        event("Input OpId_2 (cycles)", 10),
        event("Conv2d_11:OpId_23 (cycles)", 70),
        event("Output OpId_3 (cycles)", 20),
        event("QNN (execute) time (us)", 2000),
        event(None, 2_000_000),
    ]
    found = times_of(events)
    assert [(item.name, item.key) for item in found] == [
        ("Input", "Input"),
        ("Conv2d", "Conv2d_11"),
        ("Output", "Output"),
    ]
    assert [item.seconds for item in found] == pytest.approx([2e-4, 1.4e-3, 4e-4])


def test_a_run_that_tells_nothing_has_no_operations() -> None:
    assert times_of([event("QNN (execute) time (us)", 9)]) == []


def test_operations_without_cycles_took_no_time() -> None:
    assert [item.seconds for item in times_of([event("Relu_1:OpId_2 (cycles)", 0)])] == [0.0]
