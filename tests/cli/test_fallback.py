"""`delegatekit lower` tells what falls back to the runtime, bounds it, and takes out what a compiler fails at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delegatekit.cli import console

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.look, self.say = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.say(torch.atan(torch.relu(self.look(x))).mean((2, 3)))

def net():
    torch.manual_seed(0)
    return Net().eval(), (torch.ones(1, 3, 12, 12),)
"""
BACKEND = """
from delegatekit_api import *

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        known = ("aten.linear.default", "aten.relu.default", "aten.convolution.default")[:COUNT]
        return Verdict.yes() if call.operator in known else Verdict.no("it is not in the table")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("NAME", "NAMEBackend", "delegatekit-NAME", "1.2", "for tests")

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options):
    nodes = [node.name for node in partition.view.graph.nodes]
    if "relu_default" in nodes and FAILS: raise ValueError("internal error 3")
    return PreprocessResult(b"blob")
"""


@pytest.fixture
def cli(command: Any, install_plugin: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls the command: "some" takes linear layers, "most" all with multiply-accumulates, "fails" fails at one."""
    for name, count, fails in (("none", 0, 0), ("some", 1, 0), ("most", 3, 0), ("fails", 3, 1)):
        source = BACKEND.replace("NAME", name).replace("COUNT", str(count)).replace("FAILS", str(fails))
        install_plugin(name, source)
    for printer in (console.out, console.err):
        monkeypatch.setattr(printer, "_width", 200, raising=False)
    return lambda *words, **more: command("lower", "models:net", "-o", "net.pte", *words, **more)


def test_the_share_of_each_backend_comes_first_then_the_largest_left_out(cli: Any) -> None:
    first, *left = cli("-b", "some").out.splitlines()
    assert first == (
        "some runs 1 of 5 operators (20.0 %) and 0.1 % of 21,632 MACs; the runtime runs 4 (80.0 %) and 99.8 %"
    )
    assert left[0] == "  left out: aten.convolution.default x1, 21,600 MACs in look: some: it is not in the table"
    assert left[1].startswith("  left out: aten.relu.default x1 in ")
    assert left[2].startswith("  left out: aten.atan.default x1 in ")
    assert left[3].startswith("method forward: 1 delegate runs 1 of 5 operators, arena ")


def test_nothing_delegated_is_marked_and_in_color(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = cli("-b", "none")
    assert said.out.startswith("nothing is delegated: the runtime runs 5 of 5 operators (100.0 %)")
    assert "warning: backend none took nothing" in said.err
    monkeypatch.setattr(console.out, "_color_system", console.Terminal(force_terminal=True)._color_system)
    monkeypatch.setattr(console.out, "_force_terminal", True)
    colored = cli("-b", "none").out
    assert "\x1b[1;31mnothing is delegated" in colored
    assert "\x1b[1;31msome runs" not in cli("-b", "some").out


def test_json_has_the_same_facts(cli: Any) -> None:
    shares = json.loads(cli("-b", "some", "--json").out)["shares"]
    assert shares["backends"] == {"some": {"operators": 1, "macs": 32}}
    assert shares["runtime"] == {"operators": 4, "macs": 21600}
    first = shares["left_out"][0]
    assert (first["operator"], first["count"], first["macs"]) == ("aten.convolution.default", 1, 21600)
    assert (first["place"], first["reasons"]) == ("look", {"some": "it is not in the table"})


@pytest.mark.parametrize("least", [["60%"], ["macs=100%"], ["60%", "macs=95 %"], ["operators=0.6"]])
def test_enough_is_written(least: list[str], cli: Any, tmp_path: Path) -> None:
    words = [word for share in least for word in ("--min-delegated", share)]
    assert "wrote net.pte" in cli("-b", "most", *words).out


@pytest.mark.parametrize("least", [["61%"], ["60%", "operators=0.61"], ["1"]])
def test_less_is_refused_and_nothing_written(least: list[str], cli: Any, tmp_path: Path) -> None:
    words = [word for share in least for word in ("--min-delegated", share)]
    said = cli("-b", "most", *words, code=1)
    assert "error: min_delegated: 60.0 % of the operators are delegated (3 of 5)" in said.err
    assert "left out: aten.atan.default x1 in " in said.err and "most: it is not in the table" in said.err
    assert not said.out and not (tmp_path / "net.pte").exists()


@pytest.mark.parametrize("least", ["much", "flops=95%", "95", "="])
def test_what_is_no_share_is_wrong_usage(least: str, cli: Any) -> None:
    assert "is no share of a program" in cli("-b", "most", "--min-delegated", least, code=2).err


def test_a_compiler_that_fails_is_an_error_and_with_repartition_a_warning(cli: Any, tmp_path: Path) -> None:
    assert "internal error 3" in cli("-b", "fails", code=1).err
    assert not (tmp_path / "net.pte").exists()
    said = cli("-b", "fails", "--repartition", "--html", "net.html")
    assert said.err.startswith("warning: aten.relu.default (relu_default) in ")
    assert "of method forward is not on fails: taken out: its compiler fails at it: ValueError: internal" in said.err
    assert said.out.startswith("fails runs 2 of 5 operators (40.0 %) and 100.0 % of 21,632 MACs")
    assert "left out: aten.relu.default x1 in " in said.out
    assert "taken out: its compiler fails at it" in (tmp_path / "net.html").read_text()
    assert (tmp_path / "net.pte").exists()


def test_a_search_that_takes_too_long_is_an_error(cli: Any, tmp_path: Path) -> None:
    said = cli("-b", "fails", "--repartition", "--repartition-limit", "1", code=1)
    assert "1 compilations of parts did not find" in said.err and "internal error 3" in said.err
    assert not (tmp_path / "net.pte").exists()


def test_with_repartition_and_no_fault_the_file_is_the_same(cli: Any, tmp_path: Path) -> None:
    cli("-b", "most")
    plain = (tmp_path / "net.pte").read_bytes()
    cli("-b", "most", "--repartition", "--min-delegated", "10%")
    assert (tmp_path / "net.pte").read_bytes() == plain
