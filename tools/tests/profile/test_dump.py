"""ETDumps of users' devices: shown as profiles, and refused if they are damaged or of another program."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import dumps
import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit.errors.misuse import UnknownMethodError
from delegatekit_api import DelegateKitError, FormatError
from delegatekit_toolkit.etdump import Event, ProfileEvent, RunData
from delegatekit_tools.profile import files


class Net(nn.Module):
    """Two delegates around an operator that the reference is not given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.atan(self.first(x).relu()))


@pytest.fixture(scope="module")
def lowered() -> dk.LoweredProgram:
    return dk.lower(Net().eval(), (torch.randn(2, 8),), backends=["reference"], skip=["aten.atan.default"])


def run(begin: int, scale: int = 1, kernel: str = "atan.out") -> RunData:
    """A call of the net that begins at a time: delegate 0, atan, delegate 1."""
    times = [begin + scale * time for time in (0, 10, 20, 30, 50, 60, 90, 95, 100)]
    events = [
        *dumps.delegate(0, times[1], times[3], k0=(times[1], times[2]), k1=(times[2], times[3])),
        *dumps.operator(1, kernel, times[3], times[4]),
        *dumps.delegate(2, times[5], times[6], other=(times[5], times[6])),
    ]
    return dumps.call(events, times[0], times[8])


def test_times_of_instructions_and_operators_are_told(lowered: dk.LoweredProgram) -> None:
    data = dumps.dump(run(1000, 5), run(2000), run(3000, 3))
    found = dk.read_etdump(data, lowered.buffer, debug_map=lowered.debug_map(), warm_up=1)
    assert (found.method, found.recorded) == ("forward", "ETDump")
    assert found.total.wall == pytest.approx((100e-9, 300e-9)) and found.warm_up.wall == pytest.approx((500e-9,))
    assert [item.calls for item in found.instructions] == ["delegate 0", "aten::atan.out", "delegate 1"]
    assert [item.times.wall for item in found.instructions] == [
        pytest.approx(pair) for pair in ((20e-9, 60e-9), (20e-9, 60e-9), (30e-9, 90e-9))
    ]
    assert found.instructions[1].starts == pytest.approx((30e-9, 90e-9))
    assert found.instructions[0].made_by.startswith("delegatekit-reference")
    first, second = found.instructions[0].operators
    assert (first.key, second.key, first.name) == (0, 1, "conv")
    assert first.times.wall == pytest.approx((10e-9, 30e-9))
    assert first.origin.modules == ("first",) and "test_dump.py" in second.origin.sources[0]
    (only,) = found.instructions[2].operators
    assert (only.name, only.key, only.origin.modules) == ("other", "other", ("second",))  # as many as the map numbers


def test_a_device_may_count_cycles(lowered: dk.LoweredProgram) -> None:
    found = dk.read_etdump(dumps.dump(run(0)), lowered.buffer, ticks_per_second=1e6)
    assert found.total.wall == pytest.approx((1e-4,))


def test_text_and_files_are_those_of_a_measured_profile(lowered: dk.LoweredProgram) -> None:
    load = RunData(
        "Default", events=[Event(ProfileEvent("Program::load_method", -1, 0, start_time=0, end_time=2_000_000))]
    )
    found = dk.read_etdump(dumps.dump(load, run(10**7, 1000)), lowered.buffer)
    text = str(found)
    assert "recorded in ETDump" in text and "loaded in 2.000 ms" in text and "in calls of their own" not in text
    events = json.loads(files.trace(found))["traceEvents"]
    spans = [(item["name"], item["ts"], item["dur"]) for item in events if item["ph"] == "X" and item["tid"] == 1]
    assert [(name, round(start), round(length)) for name, start, length in spans] == [
        ("delegate 0", 10, 20), ("aten::atan.out", 30, 20), ("delegate 1", 60, 30)
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(files.table(found))))
    assert [row["operator"] for row in rows] == ["", "conv", "conv", "", "", "other"]


def test_instructions_are_named_without_the_program(lowered: dk.LoweredProgram) -> None:
    data = dumps.dump(run(0))
    alone = dk.read_etdump(data)
    assert [item.calls for item in alone.instructions] == ["delegate", "atan.out", "delegate"]
    mapped = dk.read_etdump(data, debug_map=lowered.debug_map())
    assert [item.calls for item in mapped.instructions] == ["delegate 0", "aten::atan.out", "delegate 1"]
    assert mapped.instructions[0].operators[0].origin.modules == ("first",)


def test_calls_of_several_methods_are_told_apart() -> None:
    x = torch.ones(3)
    programs = {"sine": torch.export.export(Sine(), (x,)), "forward": torch.export.export(nn.ReLU(), (x,))}
    program = dk.lower(programs, backends=[]).buffer
    relu = dumps.call(dumps.operator(0, "relu.out", 2, 5), 0, 10)
    sine = dumps.call(dumps.operator(0, "sin.out", 102, 106), 100, 120)
    data = dumps.dump(relu, sine, sine)
    assert len(dk.read_etdump(data, program).total.wall) == 1
    found = dk.read_etdump(data, program, method="sine")
    assert found.total.wall == pytest.approx((20e-9, 20e-9))
    assert dk.read_etdump(dumps.dump(sine), program).method == "sine"
    with pytest.raises(UnknownMethodError, match="no method 'cosine'"):
        dk.read_etdump(data, program, method="cosine")
    with pytest.raises(DelegateKitError, match=r"instruction 0 is sin\.out in the dump, aten::relu\.out"):
        dk.read_etdump(dumps.dump(sine), program, method="forward")


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def test_an_instruction_that_runs_several_times_is_summed_up() -> None:
    events = [*dumps.operator(0, "sin.out", 0, 10), *dumps.operator(0, "sin.out", 20, 25)]
    found = dk.read_etdump(dumps.dump(dumps.call(events, 0, 30)))
    assert found.instructions[0].times.wall == pytest.approx((15e-9,))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (dumps.dump(run(0, kernel="sin.out")), "instruction 1 is sin.out in the dump, aten::atan.out in the program"),
        (dumps.dump(dumps.call(dumps.operator(0, "sin.out", 0, 9), 0, 9)), "instruction 0 is sin.out in the dump"),
        (dumps.dump(dumps.call(dumps.delegate(0, 0, 9), 0, 9)), "instruction 1, aten::atan.out, did not run"),
        (dumps.dump(dumps.call(dumps.delegate(3, 0, 9), 0, 9)), "instruction 3 ran, the program has 3"),
        (dumps.dump(dumps.call(dumps.delegate(1, 0, 9), 0, 9)), "instruction 1 is a delegate in the dump"),
    ],
)
def test_a_dump_of_another_program_is_one_clear_error(
    lowered: dk.LoweredProgram, data: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.etdump"
    path.write_bytes(data)
    with pytest.raises(DelegateKitError, match=f"x.etdump: is no dump of method forward of this program: {words}"):
        dk.read_etdump(path, lowered.buffer)


def test_a_debug_map_of_another_program_is_refused(lowered: dk.LoweredProgram) -> None:
    other = dk.lower(Net().eval(), (torch.randn(2, 8),), backends=[]).debug_map()
    with pytest.raises(DelegateKitError, match="is of another file"):
        dk.read_etdump(dumps.dump(run(0)), lowered.buffer, debug_map=other)
    wrong: Any = {"forward": [1]}
    with pytest.raises(DelegateKitError, match="is no debug map"):
        dk.read_etdump(dumps.dump(run(0)), debug_map=wrong)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (dumps.dump(RunData("Default", events=[])), "has no call of a method"),
        (dumps.dump(dumps.call(dumps.operator(0, "x", 9, 4), 0, 9)), "ends before it begins"),
        (dumps.dump(dumps.call(dumps.operator(2**31 - 1, "x", 0, 9), 0, 9)), "only 1 in all"),
        (b"", "0 bytes, too few"),
        (dumps.dump(run(0))[:-9], "it was cut off"),
    ],
)
def test_a_damaged_dump_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        dk.read_etdump(data)


def test_any_damage_is_one_error_or_a_profile(lowered: dk.LoweredProgram) -> None:
    data = dumps.dump(run(0), run(1000))
    outcomes = {"read": 0, "refused": 0}
    for place in range(len(data)):
        for mask in (0x55, 0xFF, 0x01):
            damaged = bytearray(data)
            damaged[place] ^= mask
            try:
                str(dk.read_etdump(bytes(damaged)))
                outcomes["read"] += 1
            except DelegateKitError:
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 200


@pytest.mark.parametrize(("clock", "warm_up"), [(0.0, 0), (float("inf"), 0), (1e9, -1)])
def test_clock_and_warm_up_must_make_sense(clock: float, warm_up: int) -> None:
    with pytest.raises(DelegateKitError, match="positive clock"):
        dk.read_etdump(dumps.dump(run(0)), ticks_per_second=clock, warm_up=warm_up)
