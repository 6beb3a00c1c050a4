"""Runs the suite, at its default settings, against the backend with one seeded fault."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from delegatekit_conformance.outcome import Outcome
from delegatekit_conformance.report import read_json
from delegatekit_conformance.run import Run

#: The folder with the package and the metadata of the backend "faulty".
FAULTY = Path(__file__).parent / "faulty"
sys.path.insert(0, str(FAULTY))

from delegatekit_faulty.fault import Fault, all_faults  # noqa: E402  lies in that folder

FAULTS = all_faults()


@dataclass(frozen=True)
class Finding:
    """The first case that finds a fault, and what it says."""

    case: str
    outcome: Outcome


def find(fault: Fault, folder: Path) -> Finding | None:
    """Run the fault's cases up to the first that finds it; files go to `folder`."""
    run = conform(fault.name, fault.select, folder, "--maxfail", "1")
    for result in run.faults:
        return Finding(result.case, result.faults[0])
    return None


def conform(fault: str, select: tuple[str, ...], folder: Path, *more: str) -> Run:
    """The run of `delegatekit conform faulty` in a process of its own, with a fault's name or "" for none."""
    path = folder / "run.json"
    patterns = [word for pattern in select for word in ("--select", pattern)]
    environment = os.environ | {"DELEGATEKIT_FAULT": fault, "PYTHONPATH": str(FAULTY)}
    program = [sys.executable, "-c", "from delegatekit.cli import main; main()"]
    command = [*program, "conform", "faulty", "--jobs", "1", "--json", str(path)]
    done = subprocess.run(
        [*command, *patterns, *more], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode not in (0, 1) or not path.is_file():
        raise AssertionError(f"the run ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    run = read_json(path)
    assert (done.returncode == 1) == bool(run.faults)
    return run
