"""The suite tells faults apart: backends with one seeded fault each get the verdict that fits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from delegatekit_conformance.cases import CASES, Case
from delegatekit_conformance.runner import run_isolated
from delegatekit_conformance.verdicts import ROUNDOFF, Outcome, Verdict, tolerance

#: A backend that multiplies; the test's fault goes where the marks are.
PLUGIN = """
import os, signal, time
from delegatekit_api import *
from delegatekit_api import Availability, PreprocessResult, Verdict

@hookimpl
def describe_backend():
    return BackendDescription("seeded", "SeededBackend", "delegatekit-seeded", "0.1.0", "seeded fault")

class Partitioner:
    def keep_operators(self):
        return ()
    def check(self, node, program):
        return Verdict.yes() if str(node.target) == "aten.mul.Tensor" else Verdict.no("only multiplies")
    def propose(self, program):
        return None

class Runtime:
    def is_available(self):
        return Availability({available})
    def init(self, payload):
        {init}
        return payload
    def execute(self, handle, inputs, outputs):
        {execute}
        outputs[0].copy_(inputs[0] * inputs[1])
    def destroy(self, handle):
        pass

@hookimpl
def create_partitioner(options):
    return Partitioner()

@hookimpl
def preprocess(partition, options):
    {preprocess}
    return PreprocessResult(b"blob")

@hookimpl
def create_runtime():
    return Runtime()
"""

FAULTS: dict[str, tuple[dict[str, str], Verdict]] = {
    "none": ({}, Verdict.DELEGATED),
    "wrong numbers": ({"execute": "outputs[0].copy_(inputs[0] * inputs[1] * 1.001); return"}, Verdict.MISMATCH),
    "not a number": ({"execute": "outputs[0].fill_(float('nan')); return"}, Verdict.MISMATCH),
    "nothing written": ({"execute": "return"}, Verdict.MISMATCH),
    "crash while running": ({"execute": "os.kill(os.getpid(), signal.SIGSEGV)"}, Verdict.CRASH),
    "crash while compiling": ({"preprocess": "os._exit(3)"}, Verdict.CRASH),
    "hang": ({"execute": "time.sleep(1000)"}, Verdict.TIMEOUT),
    "compiler error": ({"preprocess": "raise ValueError('tool says no')"}, Verdict.LOWERING_ERROR),
    "blob refused": ({"init": "raise ValueError('bad magic')"}, Verdict.LOAD_ERROR),
    "error while running": ({"execute": "raise ValueError('device lost')"}, Verdict.RUN_ERROR),
    "no runtime here": ({"available": "False, 'no such hardware'"}, Verdict.UNAVAILABLE),
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    def add(**fault: str) -> None:
        parts = {"init": "pass", "execute": "pass", "preprocess": "pass", "available": "True"} | fault
        (tmp_path / "seeded_plugin.py").write_text(PLUGIN.format(**parts))
        info = tmp_path / "delegatekit_seeded-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: delegatekit-seeded\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text("[delegatekit.backends]\nseeded = seeded_plugin\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return add


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_gets_its_verdict(name: str, install: object) -> None:
    fault, verdict = FAULTS[name]
    install(**fault)  # type: ignore[operator]
    outcome = run_isolated("seeded", "mul", timeout=12 if verdict is Verdict.TIMEOUT else 60)
    assert outcome.verdict is verdict, outcome
    assert outcome.verdict.is_fault == (verdict not in (Verdict.DELEGATED, Verdict.UNAVAILABLE))
    if verdict not in (Verdict.DELEGATED,):
        assert outcome.detail


def test_operators_that_the_backend_leaves_come_with_its_reasons(install: object) -> None:
    install()  # type: ignore[operator]
    outcome = run_isolated("seeded", "sigmoid", timeout=60)
    assert outcome.verdict is Verdict.FALLBACK
    assert outcome.refusals == ("aten.sigmoid.default: only multiplies",)


def conform(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from delegatekit.cli import main; main()"
    command = [sys.executable, "-c", code, "conform", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_reports_and_writes_json(install: object, tmp_path: Path) -> None:
    install(execute="outputs[0].zero_(); return")  # type: ignore[operator]
    path = tmp_path / "report.json"
    result = conform("seeded", "--select", "[ms][ui][lg]*", "--json", str(path))
    assert result.returncode == 1, result.stderr
    assert "wrong result" in result.stdout
    report = json.loads(path.read_text())
    assert report["faults"] == 1
    assert {case["case"]: case["verdict"] for case in report["cases"]} == {
        "mul": "wrong result",
        "sigmoid": "correct, nothing delegated",
    }
    assert report["backend"] == {"name": "seeded", "distribution": "delegatekit-seeded", "version": "0.1.0"}


def test_the_command_says_what_is_wrong_with_its_arguments() -> None:
    assert "no backend 'nobody'" in (unknown := conform("nobody")).stderr
    assert unknown.returncode == 1
    empty = conform("xnnpack", "--select", "nothing like this")
    assert empty.returncode == 2
    assert "no case matches" in empty.stderr


@pytest.mark.parametrize("name", ["conv2d", "layer_norm", "model: small transformer"])
def test_the_installed_backend_passes(name: str) -> None:
    pytest.importorskip("executorch", reason="the runtime of the XNNPACK backend (executorch) is not installed")
    outcome = run_isolated("xnnpack", name, timeout=60)
    assert outcome.verdict is Verdict.DELEGATED, outcome


def test_cases_are_the_same_in_every_process() -> None:
    for case in CASES:
        (first, inputs), (second, again) = case.make(), case.make()
        assert all(one.equal(two) for one, two in zip(inputs, again, strict=True))
        assert all(one.equal(two) for one, two in zip(first.parameters(), second.parameters(), strict=True))
    assert len({case.name for case in CASES}) == len(CASES)
    assert isinstance(CASES[0], Case)


def test_tolerance_follows_precision_depth_and_length() -> None:
    assert tolerance("float32", 1, 1) == 8 * ROUNDOFF["float32"]
    assert tolerance("float16", 1, 1) > 1000 * tolerance("float32", 1, 1)
    assert tolerance("float32", 2, 16) == 8 * tolerance("float32", 1, 1)


def test_outcomes_survive_the_way_through_json() -> None:
    outcome = Outcome("case", Verdict.PARTLY, "why", 1, 2, 3, ("a: b",), 0.5, 1.0, 2.0)
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome
