"""Runs the suite, at its default settings, against a backend with seeded faults."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegatekit_conformance import Outcome, Run, Settings

#: The folder with the package and the metadata of the backend "faulty".
FAULTY = Path(__file__).parent / "faulty"
# The folder is on the path for as long as this import takes: other tests must not find the backend installed.
sys.path.insert(0, str(FAULTY))

from delegatekit_faulty.fault import Fault, all_faults  # noqa: E402  lies in that folder

FAULTS = all_faults()
sys.path.remove(str(FAULTY))


@dataclass(frozen=True)
class Finding:
    """The first case that finds a fault, and its words."""

    case: str
    outcome: Outcome


def find(fault: Fault, base: str = "reference") -> Finding | None:
    """Run the fault's cases, on the backend `base` or the fault's own, up to the first that finds it."""
    run = conform([fault.name], fault.select, base=fault.base or base, maxfail=1)
    for result in run.faults:
        return Finding(result.case, result.faults[0])
    return None


#: In a process of its own: a fault may do harm to the process that imports it.
_PROGRAM = """
import pickle, sys
from delegatekit_conformance import Session
settings = pickle.load(sys.stdin.buffer)
pickle.dump(Session(settings).run(), sys.stdout.buffer)
"""


def conform(faults: Iterable[str], select: Iterable[str], *, base: str = "reference", **more: Any) -> Run:
    """A run of the suite with the faults of these names, on the backend `base`; `more` are further settings."""
    settings = Settings("faulty", select=tuple(select), jobs=1, **more)
    environment = {
        "DELEGATEKIT_FAULT": ",".join(faults),
        "DELEGATEKIT_FAULT_BASE": base,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(FAULTY), os.environ.get("PYTHONPATH")))),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=os.environ | environment,
        input=pickle.dumps(settings),
        capture_output=True,
        timeout=3600,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"the run ended with {done.returncode}: {done.stderr[-2000:].decode()}")
    run: Run = pickle.loads(done.stdout)
    return run
