"""`delegatekit bundle` and `verify`: sources of cases, messages and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import delegatekit as dk


@pytest.fixture
def net(cli: Callable[..., Any]) -> Callable[..., Any]:
    """The command, in a folder with the program `linear.pte` of `models:linear` and `sum.pte` of `models:keywords`."""
    cli("lower", "models:linear", "-b", "nothing", "-o", "linear.pte")
    cli("lower", "models:keywords", "-b", "nothing", "-o", "sum.pte")
    return cli


def test_the_engine_says_what_is_expected_where_nobody_else_does(net: Callable[..., Any]) -> None:
    found = net("bundle", "linear.pte", "--cases", "3")
    assert "added 3 cases of forward; expected outputs: the Python engine" in found.stdout
    assert "wrote linear.bpte" in found.stdout and "cases: forward 3" in found.stdout
    lines = net("verify", "linear.bpte").stdout.splitlines()
    assert len(lines) == 4 and lines[-1].startswith("3 cases: all as expected")
    data = [bytes(case.inputs[0].val.data) for case in cases("linear.bpte")]
    assert len(set(data)) == 3


def test_eager_mode_says_it_where_the_model_is_given(net: Callable[..., Any]) -> None:
    for name, file in (("linear", "linear.pte"), ("exported", "linear.pte"), ("keywords", "sum.pte")):
        model = f"models:{name}"
        found = net("bundle", file, "--model", model, "-o", "x.bpte")
        assert f"expected outputs: {model} in eager mode" in found.stdout
        assert "case 0: passes" in net("verify", "x.bpte").stdout
    net("bundle", "linear.pte", "--model", "models:linear", "--cases", "2", "-o", "y.bpte")
    assert json.loads(net("verify", "y.bpte", "--json").stdout)["results"][1]["case"] == 1


def test_files_are_inputs_and_expected_outputs(net: Callable[..., Any]) -> None:
    for index in range(4):
        np.save(f"in{index}.npy", np.full((2,), float(index), np.float32))
    torch.save(torch.ones(2), "out0.pt")
    torch.save(torch.full((2,), 2.0) + torch.atan(torch.full((2,), 3.0)), "out1.pt")
    inputs = [f"in{index}.npy" for index in range(4)]
    net("bundle", "sum.pte", *inputs, "--expected", "out0.pt", "--expected", "out1.pt", "-o", "x.bpte")
    found = net("verify", "x.bpte", code=1)
    assert "forward, case 0: differs" in found.stdout and "0.785398185 instead of 1 at [0]" in found.stdout
    assert "forward, case 1: passes" in found.stdout
    net("verify", "x.bpte", "--atol", "0.3")


def test_cases_are_added_to_a_bundle(net: Callable[..., Any]) -> None:
    net("bundle", "linear.pte")
    found = json.loads(net("bundle", "linear.bpte", "--cases", "2", "--seed", "9", "-o", "more.bpte", "--json").stdout)
    assert found == {
        "cases": {"forward": 3}, "added": {"forward": 2}, "expected": "the Python engine", "file": "more.bpte"
    }  # fmt: skip
    assert "cases of forward 3" in net("inspect", "more.bpte").stdout
    assert "output 0" in net("run", "more.bpte").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("linear.bpte",), "is an input of this command"),
        (("linear.pte", "--method", "other"), "there is no method 'other' (methods: forward)"),
        (("linear.pte", "a.npy", "--cases", "2"), "--cases is for random inputs"),
        (("sum.pte", "a.npy", "a.npy", "a.npy"), "the method takes 2 inputs, 3 files are given"),
        (("linear.pte", "missing.npy"), "input missing.npy does not exist"),
        (("linear.pte", "--expected", "a.npy", "--model", "models:linear"), "both give expected outputs"),
        (("linear.pte", "--expected", "a.npy", "--expected", "a.npy"), "1 case of 1 output need 1 files --expected, 2"),
        (("linear.pte", "--model", "models:exported", "--method", "x"), "there is no method 'x'"),
        (("missing.pte",), "missing.pte: does not exist"),
        (("linear.pte", "-o", "models.py"), "exists, and is not a .bpte file"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_written(
    net: Callable[..., Any], arguments: tuple[str, ...], words: str
) -> None:
    np.save("a.npy", np.ones((2, 4), np.float32))
    net("bundle", "linear.pte", "-o", "linear.bpte")
    before = sorted(Path().iterdir())
    assert words in net("bundle", *arguments, code=2).stderr
    assert sorted(Path().iterdir()) == before


def test_a_program_is_no_bundle_and_a_bundle_may_have_no_cases(net: Callable[..., Any]) -> None:
    assert "linear.pte: is no bundled program" in net("verify", "linear.pte", code=1).stderr
    dk.bundle("linear.pte", {}).save("empty.bpte")
    assert "has no cases" in net("verify", "empty.bpte", code=1).stderr
    net("bundle", "linear.pte")
    assert "no cases of a method 'x'" in net("verify", "linear.bpte", "--method", "x", code=2).stderr


def test_inputs_of_another_shape_are_refused(net: Callable[..., Any]) -> None:
    np.save("a.npy", np.ones((2, 5), np.float32))
    assert "input input: has shape (2, 5), not (2, 4)" in net("bundle", "linear.pte", "a.npy", code=1).stderr


def cases(path: str) -> Any:
    from delegatekit_tools.bundles import read_bundle

    return read_bundle(path).cases["forward"]
