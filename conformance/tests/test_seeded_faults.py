"""Tests of the suite: it finds every seeded fault at its default settings, and nothing where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from seeded import FAULTS, conform, find

from delegatekit_conformance import PROFILES, Run, Verdict

pytest.importorskip("delegatekit_reference", reason="the backend that most faults are built on is not installed")

#: One fault of each kind, what the suite must call it, and a case that finds it: these run with every change, all at
#: once, since they do not meet. Every fault by itself, with all cases that may find it, is for the slow tests.
FINDINGS = {
    "dilation-is-ignored": (Verdict.MISMATCH, "operators/aten.convolution.default/float32"),
    "crashes-at-rank-five": (Verdict.CRASH, "operators/aten.mul.Tensor/float32"),
    "compiler-fails-on-a-claim": (Verdict.LOWERING_ERROR, "operators/aten.tanh.default/float32"),
    "claims-and-leaves": (Verdict.CLAIM, "patterns/linear-relu-chain"),
    "time-of-day-in-the-blob": (Verdict.VIOLATION, "contract/same-bytes"),
}


@pytest.fixture(scope="module")
def run() -> Run:
    """At the default settings, but without a long search for smaller examples."""
    cases = {case for _, case in FINDINGS.values()}
    return conform(FINDINGS, cases, profile=replace(PROFILES["default"], shrink_seconds=0.5))


@pytest.mark.parametrize("name", FINDINGS)
def test_a_seeded_fault_gets_its_verdict(name: str, run: Run) -> None:
    verdict, case = FINDINGS[name]
    (result,) = (result for result in run.faults if result.case == case)
    assert result.verdict is verdict, result.faults
    assert all(fault.blame == "backend" for fault in result.faults)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.native and not fault.base])
def test_every_seeded_fault_is_found(name: str) -> None:
    assert find(FAULTS[name]) is not None, FAULTS[name].what


@pytest.mark.slow
def test_nothing_is_found_where_nothing_is_wrong() -> None:
    select = tuple(sorted({pattern for fault in FAULTS.values() for pattern in fault.select}))
    run = conform([], select)
    assert not run.faults, [(result.case, result.faults) for result in run.faults]
    assert len(run.results) > 200


def test_there_are_faults_of_every_part_of_a_backend() -> None:
    assert len(FAULTS) >= 150
    assert {part for fault in FAULTS.values() for part in fault.part.split(" and ")} == {
        "call",
        "describe",
        "documentation",
        "operators of blobs",
        "options",
        "partitioner",
        "precision",
        "preprocess",
        "runtime",
        "schemes",
        "targets",
        "version",
    }
