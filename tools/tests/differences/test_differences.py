"""Two files side by side: what moved, grew and slowed is told; a file beside itself differs in nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit_api import DelegateKitError, FormatError
from delegatekit_tools.differences import Differences, Figure, diff
from delegatekit_tools.differences.finding import Timing


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, width), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.second(torch.atan(self.first(x).relu()))
        return made


INPUTS = (torch.randn(2, 8),)


def lowered(width: int = 16, **settings: Any) -> dk.LoweredProgram:
    return dk.lower(Net(width).eval(), INPUTS, backends=["reference"], **settings)


@pytest.fixture(scope="module")
def programs() -> tuple[dk.LoweredProgram, dk.LoweredProgram]:
    """All on the backend, and with `atan` on the runtime."""
    return lowered(), lowered(skip=["aten.atan.default"])


@pytest.fixture(scope="module")
def found(programs: tuple[dk.LoweredProgram, dk.LoweredProgram]) -> Differences:
    before, after = programs
    return diff(before.buffer, after.buffer, debug_maps=(before.debug_map(), after.debug_map()))


def figure(found: Differences, name: str) -> Figure:
    (item,) = (item for item in found.figures if item.name == name)
    return item


def test_what_moved_is_named_with_both_places(found: Differences) -> None:
    (moved,) = found.moved
    assert (moved.operator, moved.count) == ("aten.atan.default", 1)
    assert (moved.before, moved.after) == ("delegatekit-reference", "the runtime")
    assert "test_differences.py" in moved.where
    assert [(item.name, item.before, item.after) for item in found.kernels] == [("aten::atan.out", 0, 1)]


def test_figures_are_those_of_the_files(
    found: Differences, programs: tuple[dk.LoweredProgram, dk.LoweredProgram]
) -> None:
    sizes = figure(found, "file")
    assert [sizes.before, sizes.after] == [len(program.buffer) for program in programs]
    blobs = figure(found, "blobs of delegatekit-reference")
    assert blobs.after == sum(each.blob_size for each in programs[1].methods["forward"].delegates)
    crossings = figure(found, "crossings")
    assert (crossings.before, crossings.after) == (0, 2)  # to atan, and back
    delegates = figure(found, "calls of delegates of delegatekit-reference")
    assert (delegates.before, delegates.after, delegates.change) == (1, 2, "+1")


def test_a_file_beside_itself_differs_in_nothing(programs: tuple[dk.LoweredProgram, dk.LoweredProgram]) -> None:
    program = programs[0]
    same = diff(program.buffer, program.buffer, debug_maps=(program.debug_map(), program.debug_map()))
    assert not same.moved and not same.kernels
    assert {item.change for item in same.figures} == {"the same"}


def test_what_grew_is_told_in_percent() -> None:
    small, large = lowered(16), lowered(64)
    found = diff(small.buffer, large.buffer)
    grown = figure(found, "file")
    assert grown.before is not None and grown.after is not None
    assert grown.change == f"{100 * (grown.after / grown.before - 1):+.1f} %" and grown.after > grown.before
    assert not found.moved and "without debug maps" in found.text()


def test_maps_of_other_files_are_refused(programs: tuple[dk.LoweredProgram, dk.LoweredProgram]) -> None:
    before, after = programs
    with pytest.raises(FormatError, match="another file"):
        diff(before.buffer, after.buffer, debug_maps=(after.debug_map(), before.debug_map()))


def test_both_are_timed_in_turns(programs: tuple[dk.LoweredProgram, dk.LoweredProgram]) -> None:
    before, after = (dk.load(program.buffer) for program in programs)
    found = diff(*(program.buffer for program in programs), timing=Timing(before, after, "forward", INPUTS, 3, 1))
    call = figure(found, "a call")
    assert call.before and call.after and call.unit == "seconds"
    assert figure(found, "time of aten::atan.out").before is None
    assert "time of delegates of delegatekit-reference" in found.text()


def test_methods_of_other_inputs_are_not_timed() -> None:
    one = lowered()
    other = dk.lower(nn.Linear(4, 4).eval(), (torch.randn(1, 4),), backends=["reference"])
    timing = Timing(dk.load(one.buffer), dk.load(other.buffer), "forward", INPUTS)
    with pytest.raises(DelegateKitError, match=r"float32\[2, 8\] before, float32\[1, 4\] after"):
        diff(one.buffer, other.buffer, timing=timing)


def test_measured_times_within_their_spread_are_the_same() -> None:
    assert Figure("", "a call", "seconds", 1.0, 1.1, spread=0.2).change == "the same"
    assert Figure("", "a call", "seconds", 1.0, 1.5, spread=0.2).change == "+50.0 %"
    assert Figure("", "a call", "seconds", 0.002, 0.066).change == "33 times"
    assert Figure("", "blobs", "bytes", None, 1.0).change == "new"
    assert Figure("", "blobs", "bytes", 1.0, None).change == "gone"


def test_the_command_prints_and_writes_a_page(
    programs: tuple[dk.LoweredProgram, dk.LoweredProgram], tmp_path: Path, command_with: Callable[..., Any]
) -> None:
    for name, program in zip("ab", programs, strict=True):
        program.save(tmp_path / f"{name}.pte", beside={tmp_path / f"{name}.json": json.dumps(program.debug_map())})
    files, maps = ([str(tmp_path / f"{name}.{end}") for name in "ab"] for end in ("pte", "json"))
    call, page = command_with(""), tmp_path / "diff.html"
    shown = call("diff", *files, "--debug-maps", *maps, "--html", str(page)).out
    assert "aten.atan.default x1: delegatekit-reference -> the runtime" in shown and f"wrote {page}" in shown
    text = page.read_text("utf-8")
    assert "before: forward" in text and "after: forward" in text
    found = json.loads(call("diff", *files, "--json").out)
    assert found["figures"][0]["name"] == "file" and "graphs" not in found
    assert "is an input" in call("diff", *files, "--html", files[0], code=2).err
    assert "--runs" in call("diff", *files, "--input", "x.npy", code=2).err
