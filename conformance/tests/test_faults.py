"""The suite tells faults apart: backends with one seeded fault each get the verdict that fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit_conformance.runner import run_isolated
from delegatekit_conformance.verdicts import Verdict

InstallSeeded = Callable[..., None]

CRASH = "os.kill(os.getpid(), signal.SIGSEGV)"
FAULTS: dict[str, tuple[dict[str, str], Verdict]] = {
    "none": ({}, Verdict.DELEGATED),
    "noise on stdout": ({"execute": "os.write(1, b'{\"verdict\": 1}' * 9999)"}, Verdict.DELEGATED),
    "wrong numbers": ({"execute": "outputs[0].copy_(inputs[0] * inputs[1] * 1.001); return"}, Verdict.MISMATCH),
    "not a number": ({"execute": "outputs[0].fill_(float('nan')); return"}, Verdict.MISMATCH),
    "nothing written": ({"execute": "return"}, Verdict.MISMATCH),
    "crash while running": ({"execute": CRASH}, Verdict.CRASH),
    "crash while compiling": ({"preprocess": "os._exit(3)"}, Verdict.CRASH),
    "silent exit": ({"preprocess": "os._exit(0)"}, Verdict.CRASH),
    "crash at exit": ({"init": f"import atexit; atexit.register(lambda: {CRASH})"}, Verdict.CRASH),
    "compiler error": ({"preprocess": "raise ValueError('tool says no')"}, Verdict.LOWERING_ERROR),
    "late refusal": ({"preprocess": "raise UnsupportedError('not after all')"}, Verdict.LOWERING_ERROR),
    "blob refused": ({"init": "raise ValueError('bad magic')"}, Verdict.LOAD_ERROR),
    "error while running": ({"execute": "raise ValueError('device lost')"}, Verdict.RUN_ERROR),
    "no runtime here": ({"available": "False, 'no such hardware'"}, Verdict.UNAVAILABLE),
}
#: Words that the detail must have, so that the verdict is known to come from the seeded fault.
WORDS = {
    "wrong numbers": "relative error 0.001",
    "not a number": "NaN",
    "crash while running": "signal SIGSEGV",
    "crash while compiling": "exit status 3",
    "silent exit": "exit status 0",
    "crash at exit": "signal SIGSEGV after the result was written",
    "compiler error": "tool says no",
    "late refusal": "not after all",
    "blob refused": "bad magic",
    "error while running": "device lost",
    "no runtime here": "no such hardware",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_gets_its_verdict(name: str, install_seeded: InstallSeeded) -> None:
    fault, verdict = FAULTS[name]
    install_seeded(**fault)
    outcome = run_isolated("seeded", "mul", timeout=90)
    assert outcome.verdict is verdict, outcome
    assert outcome.verdict.is_fault == (verdict not in (Verdict.DELEGATED, Verdict.UNAVAILABLE))
    assert WORDS.get(name, "") in outcome.detail


def test_a_hang_in_the_backend_is_a_timeout(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    install_seeded(preprocess=f"open({str(reached)!r}, 'w').close(); time.sleep(1000)")
    outcome = run_isolated("seeded", "mul", timeout=10)
    assert outcome.verdict is Verdict.TIMEOUT
    assert reached.exists()


def test_operators_that_the_backend_leaves_come_with_its_reasons(install_seeded: InstallSeeded) -> None:
    install_seeded()
    outcome = run_isolated("seeded", "sigmoid", timeout=90)
    assert outcome.verdict is Verdict.FALLBACK
    assert outcome.refusals == ("aten.sigmoid.default: only multiplies",)
    assert (outcome.delegates, outcome.delegated_nodes, outcome.fallback_calls) == (0, 0, 1)


def test_what_nobody_runs_is_refused_and_no_fault(install_seeded: InstallSeeded) -> None:
    install_seeded()
    outcome = run_isolated("seeded", "inverse", timeout=90)
    assert outcome.verdict is Verdict.REFUSED
    assert "aten.linalg_inv_ex.default: only multiplies" in outcome.refusals
    assert not outcome.verdict.is_fault


@pytest.mark.parametrize("name", ["add, NaN and infinities", "conv2d", "model: small CNN", "model: small transformer"])
def test_the_installed_backend_passes(name: str) -> None:
    pytest.importorskip("executorch", reason="the runtime of the XNNPACK backend (executorch) is not installed")
    outcome = run_isolated("xnnpack", name, timeout=90)
    assert outcome.verdict is Verdict.DELEGATED, outcome
    assert outcome.delegated_nodes >= (5 if name.startswith("model") else 1)
