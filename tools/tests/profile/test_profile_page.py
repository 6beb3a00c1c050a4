"""The page of a profile: the graph has each instruction with its time, and the arrows of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit_api.devices import Estimate, LayerEstimate
from delegatekit_tools.profile import Profile


class Net(nn.Module):
    """Two delegates around an operator that the reference is not given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.second(torch.atan(self.first(x).relu()))
        return made


INPUTS = (torch.randn(2, 8),)


@pytest.fixture(scope="module")
def lowered() -> dk.LoweredProgram:
    return dk.lower(Net().eval(), INPUTS, backends=["reference"], skip=["aten.atan.default"])


@pytest.fixture(scope="module")
def profile(lowered: dk.LoweredProgram) -> Profile:
    method = dk.load(lowered.buffer)["forward"]
    return dk.profile(method, INPUTS, runs=3, debug_map=lowered.debug_map())


def method_of(page: str) -> tuple[dict[str, Any], list[str]]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    (method,) = data["methods"]
    return method, data["texts"]


def test_each_operator_has_its_median(profile: Profile, lowered: dk.LoweredProgram) -> None:
    method, texts = method_of(profile.html("net.pte", lowered.buffer))
    names = [texts[item[2]] or texts[item[1]] for item in method["operators"]]
    linear, relu, atan, last = (
        "aten.linear.default", "aten.relu.default", "aten::atan.out", "aten.linear.default",
    )  # fmt: skip
    assert names == ["input", linear, relu, atan, last, "output"]
    (time,) = method["measures"]
    first, alone, second = profile.instructions
    medians = [each.times.median for each in first.operators]
    assert time["values"] == pytest.approx([None, *medians, alone.times.median, second.operators[0].times.median, None])
    assert time["delegates"] == {"0": first.times.median, "1": second.times.median}
    arrows = list(zip(method["arrows"][::2], method["arrows"][1::2], strict=True))
    assert arrows == [(0, 1), (2, 3), (3, 4), (4, 5)]


def test_without_the_file_there_are_no_arrows(profile: Profile) -> None:
    method, _ = method_of(profile.html())
    assert method["arrows"] == [] and len(method["operators"]) == 4


def test_what_is_estimated_is_a_measure_of_its_own(profile: Profile) -> None:
    estimate = Estimate(
        "compiler 1",
        latency=0.25,
        layers=(LayerEstimate("one", "Conv2D", 0.1, 5), LayerEstimate("two", "Add", 0.15, 0)),
    )
    first, *others = profile.instructions
    told = replace(profile, instructions=(replace(first, operators=(), estimate=estimate), *others))
    method, texts = method_of(told.html())
    here, device = method["measures"]
    assert [texts[item[2]] for item in method["operators"]][:2] == ["Conv2D", "Add"]
    assert device["values"][:2] == [0.1, 0.15] and device["delegates"] == {"0": 0.25}
    assert here["values"][:2] == [None, None] and here["delegates"]["0"] == first.times.median


def test_the_command_writes_the_page(
    lowered: dk.LoweredProgram, tmp_path: Path, command_with: Callable[..., Any]
) -> None:
    lowered.save(tmp_path / "net.pte")
    call, page = command_with(""), tmp_path / "net.html"
    shown = call("profile", str(tmp_path / "net.pte"), "--runs", "2", "--html", str(page)).out
    assert f"wrote {page}" in shown and "Profile of net.pte" in page.read_text("utf-8")
    assert "net.pte" in call("profile", str(tmp_path / "net.pte"), "--html", str(tmp_path / "net.pte"), code=2).err
