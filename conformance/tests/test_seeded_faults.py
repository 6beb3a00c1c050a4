"""Who tests the suite: it finds every seeded fault at its default settings, and nothing where nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded import FAULTS, conform, find

from delegatekit_conformance.outcome import Verdict

pytest.importorskip("delegatekit_reference", reason="the backend that most faults are built on is not installed")

#: One of each kind, and what the suite must call it: these run with every change, all of them with the slow tests.
VERDICTS = {
    "dilation-is-ignored": Verdict.MISMATCH,
    "crashes-at-rank-five": Verdict.CRASH,
    "compiler-fails-on-a-claim": Verdict.LOWERING_ERROR,
    "claims-and-leaves": Verdict.CLAIM,
    "time-of-day-in-the-blob": Verdict.VIOLATION,
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_seeded_fault_gets_its_verdict(name: str, tmp_path: Path) -> None:
    finding = find(FAULTS[name], tmp_path)
    assert finding is not None
    assert finding.outcome.verdict is VERDICTS[name], finding
    assert finding.outcome.blame == "backend"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_seeded_fault_is_found(name: str, tmp_path: Path) -> None:
    if FAULTS[name].base == "xnnpack":
        pytest.importorskip("executorch", reason="the runtime of the XNNPACK backend (executorch) is not installed")
    finding = find(FAULTS[name], tmp_path)
    assert finding is not None, FAULTS[name].what


@pytest.mark.slow
def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    select = tuple(sorted({pattern for fault in FAULTS.values() for pattern in fault.select}))
    run = conform("", select, tmp_path)
    assert not run.faults, [(result.case, result.faults) for result in run.faults]
    assert len(run.results) > 200


def test_there_are_faults_of_every_part_of_a_backend() -> None:
    assert len(FAULTS) >= 60
    assert {fault.part for fault in FAULTS.values()} == {
        "call",
        "describe",
        "options",
        "partitioner",
        "preprocess",
        "runtime",
    }
