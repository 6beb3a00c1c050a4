"""Takes one measurement in a fresh process: the script itself, called with `--measure`, prints it as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def measured(script: str, *names: str, more: Sequence[str] = ()) -> dict[str, Any] | None:
    """The last line that `script --measure names more` prints, parsed; None, with the reason on stderr, if it fails."""
    # The compile cache is off: compiling is part of the measurement.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DELEGATEKIT_COMPILED": "off"}
    command = [sys.executable, script, "--measure", *names, *more]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        print(f"{' '.join(names)} failed:\n{result.stderr[-2000:]}", file=sys.stderr)
        return None
    answer: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return answer
