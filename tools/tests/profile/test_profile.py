"""Profiles: reported instructions are those that ran, times map to lines, and files suit their readers."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit_api import Availability, DelegateKitError
from delegatekit_tools.profile import InstructionProfile, OperatorProfile, Origin, Profile, Times, files


class Net(nn.Module):
    """Two delegates around an operator that the reference is not given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.atan(self.first(x).relu()))


INPUTS = (torch.randn(2, 8),)


@pytest.fixture(scope="module")
def lowered() -> dk.LoweredProgram:
    """The net on the reference backend, `atan` outside."""
    return dk.lower(Net().eval(), INPUTS, backends=["reference"], skip=["aten.atan.default"])


@pytest.fixture
def profile(lowered: dk.LoweredProgram) -> Profile:
    """Five calls of it."""
    method = dk.load(lowered.buffer)["forward"]
    return dk.profile(method, INPUTS, runs=5, warm_up=2, debug_map=lowered.debug_map())


def test_each_instruction_has_as_many_times_as_calls(profile: Profile) -> None:
    assert [item.calls for item in profile.instructions] == ["delegate 0", "aten::atan.out", "delegate 1"]
    assert (len(profile.total.wall), len(profile.warm_up.wall)) == (5, 2)
    for item in profile.instructions:
        assert len(item.times.wall) == len(item.times.cpu) == len(item.starts) == 5
        assert all(seconds > 0 for seconds in item.times.wall)
    starts = [item.starts[0] for item in profile.instructions]
    assert starts == sorted(starts)
    assert [item.made_by.split()[0] for item in profile.instructions if item.made_by] == ["delegatekit-reference"] * 2


def test_operators_inside_delegates_are_traced_to_their_lines(profile: Profile) -> None:
    first, atan, second = profile.instructions
    assert [item.name for item in first.operators] == ["aten.linear.default", "aten.relu.default"]
    assert [item.name for item in second.operators] == ["aten.linear.default"]
    assert atan.operators == ()
    assert [item.origin.modules for item in (*first.operators, *second.operators)] == [("first",), (), ("second",)]
    (line,) = atan.origin.sources
    assert "test_profile.py" in line and atan.origin.operators == ("aten.atan.default",)
    assert all(len(item.times.wall) == 5 for item in first.operators)


def test_without_a_debug_map_nothing_is_traced(lowered: dk.LoweredProgram) -> None:
    found = dk.profile(dk.load(lowered.buffer)["forward"], INPUTS, runs=1, warm_up=0)
    assert {item.origin for item in found.instructions} == {Origin()}
    assert found.instructions[0].operators[0].key == 0
    assert found.warm_up == Times(())


def test_a_map_of_another_file_is_refused(lowered: dk.LoweredProgram) -> None:
    method = dk.load(lowered.buffer)["forward"]
    other = dk.lower(nn.ReLU(), INPUTS, backends=["reference"]).debug_map()
    for wrong, words in [
        (other, "of another file: it has 1 instructions, the file 3"),
        ({"prefill": {}}, "has no method forward, only prefill"),
        ({"forward": {"nodes": {}}}, "is no debug map"),
        ({"forward": 7}, "is no debug map"),
    ]:
        with pytest.raises(DelegateKitError, match=words):
            dk.profile(method, INPUTS, debug_map=wrong)
    same_names = dk.lower(Net().eval(), (torch.randn(3, 8),), backends=["reference"], skip=["aten.atan.default"])
    with pytest.raises(DelegateKitError, match="of another file: its instructions are the same"):
        dk.profile(method, INPUTS, debug_map=same_names.debug_map())
    swapped = lowered.debug_map()
    swapped["forward"]["instructions"][1]["calls"] = "aten::tan.out"
    with pytest.raises(
        DelegateKitError, match=r"instruction 1 calls aten::tan\.out there, aten::atan\.out in the file"
    ):
        dk.profile(method, INPUTS, debug_map=swapped)


@pytest.mark.parametrize("settings", [{"runs": 0}, {"warm_up": -1}])
def test_numbers_of_calls_are_checked(settings: dict[str, int], lowered: dk.LoweredProgram) -> None:
    with pytest.raises(DelegateKitError, match="takes 1 run or more"):
        dk.profile(dk.load(lowered.buffer)["forward"], INPUTS, **settings)


class Counter(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def test_buffers_begin_anew_afterwards() -> None:
    program = dk.lower(Counter(), (torch.zeros(1),), backends=["reference"])
    method = dk.load(program.buffer)["forward"]
    dk.profile(method, (torch.zeros(1),), runs=3)
    assert method(torch.zeros(1)).item() == 1


def test_loops_are_summed_up() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    class Loop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return while_loop(lambda x: x.sum() < 100, lambda x: (x * 2,), (x,))[0]

    method = dk.load(dk.lower(Loop(), (torch.ones(2),), backends=[]).buffer)["forward"]
    found = dk.profile(method, (torch.ones(2),), runs=2)
    assert len(found.instructions) == len(method.instructions)
    assert all(len(item.times.wall) == 2 for item in found.instructions)


def test_a_runtime_in_a_process_of_its_own_tells_the_same(lowered: dk.LoweredProgram) -> None:
    method = dk.load(lowered.buffer, isolate=["reference"])["forward"]
    found = dk.profile(method, INPUTS, runs=2)
    assert [operator.name for item in found.instructions for operator in item.operators] == [
        "aten.linear.default",
        "aten.relu.default",
        "aten.linear.default",
    ]
    torch.testing.assert_close(method(*INPUTS), dk.load(lowered.buffer)["forward"](*INPUTS))


class Silent:
    """The reference's runtime without `profile`."""

    name = "silent"

    def __init__(self) -> None:
        from delegatekit_reference.runtime import ReferenceRuntime

        runtime = ReferenceRuntime()
        self.is_available, self.init = runtime.is_available, runtime.init
        self.execute, self.destroy = runtime.execute, runtime.destroy

    def runtime_availability(self) -> Availability:
        return self.is_available()

    def create_runtime(self) -> Any:
        return self


def test_a_runtime_that_tells_nothing_is_timed_as_a_whole(lowered: dk.LoweredProgram) -> None:
    find: Any = lambda _: Silent()  # noqa: E731
    found = dk.profile(dk.load(lowered.buffer, find_backend=find)["forward"], INPUTS, runs=2)
    assert not any(item.operators for item in found.instructions)
    assert all(item.times.median > 0 for item in found.instructions)


def test_a_runtime_that_tells_nonsense_is_blamed(lowered: dk.LoweredProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit_reference.runtime import ReferenceRuntime

    monkeypatch.setattr(ReferenceRuntime, "profile", lambda *_: [("conv", 1.0)])
    with pytest.raises(DelegateKitError, match=r"what profile returned\[0\] is"):
        dk.profile(dk.load(lowered.buffer)["forward"], INPUTS)


# -- figures and files -------------------------------------------------------------------------------------------------

MADE = Profile(
    "forward",
    Times((0.010, 0.012, 0.011, 0.030), (0.010, 0.010, 0.010, 0.010)),
    Times((0.5,)),
    (
        InstructionProfile(
            0,
            "delegate 0",
            Times((0.008, 0.009, 0.010, 0.009), (0.008, 0.008, 0.008, 0.008)),
            (0.0, 0.0, 0.0, 0.0),
            "delegatekit-x 1.0",
            operators=(
                OperatorProfile("conv", Times((0.006,)), 3, Origin(("aten.conv2d.default",), ("a",), ("m.py:3: `x`",))),
                OperatorProfile("relu", Times((0.001,))),
            ),
        ),
        InstructionProfile(1, "aten::add.out", Times((0.001,) * 4, (0.001,) * 4), (0.009, 0.010, 0.011, 0.010)),
    ),
)


def test_medians_and_spreads() -> None:
    assert MADE.total.median == pytest.approx(0.0115)
    assert MADE.total.spread == pytest.approx(0.0165 - 0.01075)
    assert (Times((2.0,)).spread, Times(()).median, Times((1.0,)).median_cpu) == (0.0, 0.0, None)


def test_the_table_has_the_longest_first_and_says_what_it_leaves_out() -> None:
    lines = MADE.text(rows=2, by="instruction").splitlines()
    assert lines[0] == "method forward: 11.500 ms (spread 5.750 ms), 10.000 ms CPU a call, 4 calls"
    assert lines[1] == "before them: 500.000 ms"
    assert lines[2].startswith("calls whose instructions are measured: 10.000 ms")
    assert [line.split()[0] for line in lines[5:7]] == ["90.0", "60.0"]
    assert "0.0: conv" in lines[6] and "m.py:3" in lines[6]
    assert lines[7] == "and 2 more, 2.000 ms together"
    ordered = [line.split() for line in MADE.text(in_order=True, by="instruction").splitlines()[5:9]]
    assert [words[words.index("%") + 3 :][0] for words in ordered[1:3]] == ["0.0:", "0.1:"]


def test_a_trace_has_all_calls_one_after_the_other() -> None:
    events = json.loads(files.trace(MADE))["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == 4 * 4
    instructions = [event for event in drawn if event["tid"] == 1]
    assert [event["ts"] for event in instructions] == sorted(event["ts"] for event in instructions)
    for before, after in itertools.pairwise(instructions):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
    conv = next(event for event in drawn if event["name"] == "conv")
    assert (conv["dur"], conv["args"]["modules"]) == (6000.0, ["a"])
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"instructions", "method forward"}


def test_a_csv_has_a_line_for_each_record() -> None:
    rows = list(csv.DictReader(io.StringIO(files.table(MADE))))
    assert [(row["instruction"], row["operator"]) for row in rows] == [
        ("0", ""),
        ("0", "conv"),
        ("0", "relu"),
        ("1", ""),
    ]
    assert float(rows[1]["seconds"]) == 0.006 and rows[1]["module"] == "a"
    assert list(MADE.records())[3]["cpu_seconds"] == 0.001
    assert files.table(replace(MADE, instructions=())) == ""


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(lowered: dk.LoweredProgram, tmp_path: Path) -> Path:
    """The file, and its map beside it."""
    lowered.save(tmp_path / "net.pte", beside={tmp_path / "net.json": json.dumps(lowered.debug_map())})
    return tmp_path


def test_the_command_shows_the_table_and_writes_files(saved: Path, command_with: Callable[..., Any]) -> None:
    call = command_with("")
    trace, table = saved / "trace.json", saved / "table.csv"
    shown = call(
        "profile", str(saved / "net.pte"), "--debug-map", str(saved / "net.json"),
        "--runs", "3", "--trace", str(trace), "--csv", str(table), "--rows", "0", "--by", "instruction",
    ).out  # fmt: skip
    assert "aten::atan.out" in shown and "0.0: aten.linear.default" in shown and "first" in shown
    assert f"wrote {trace}" in shown
    assert json.loads(trace.read_text())["displayTimeUnit"] == "ms"
    assert table.read_text().startswith("instruction,calls,operator,seconds")
    by_module = call("profile", str(saved / "net.pte"), "--debug-map", str(saved / "net.json"), "--runs", "2").out
    assert {"first", "second", "itself"} <= {line.split()[4] for line in by_module.splitlines() if " % " in line}
    by_kernel = call("profile", str(saved / "net.pte"), "--runs", "2").out
    assert "aten::atan.out" in by_kernel and "aten.linear.default" in by_kernel and "module" not in by_kernel
    found = json.loads(call("profile", str(saved / "net.pte"), "--json", "--runs", "2").out)
    assert len(found["instructions"]) == 3 and len(found["total"]["wall"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["net.pte", "--method", "train"], 2, "train"),
        (["net.pte", "--runs", "0"], 2, "--runs"),
        (["net.pte", "--debug-map", "net.pte"], 1, "is not JSON"),
        (["net.pte", "--debug-map", "none.json"], 2, "none.json"),
        (["net.pte", "--debug-map", "net.json", "--etrecord", "net.json"], 2, "are both given"),
        (["net.pte", "--etrecord", "net.json"], 1, "is no ETRecord"),
        (["net.pte", "--by", "line"], 1, "nothing tells a line"),
        (["net.pte", "--by", "colour"], 2, "--by"),
        (["net.pte", "--trace", "net.pte"], 2, "is an input of this command"),
        (["net.pte", "a.npy", "b.npy"], 2, "takes 1 inputs, 2 files are given"),
        (["net.json"], 1, "net.json"),
    ],
)
def test_wrong_use_of_the_command(
    arguments: list[str], code: int, words: str, saved: Path, command_with: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    call = command_with("")
    monkeypatch.chdir(saved)
    found = call("profile", *arguments, code=code)
    assert words in " ".join(found.err.split()), found.err
    assert found.out == ""
