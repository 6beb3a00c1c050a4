"""Measures memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

#: The most KiB that were resident in a process. `getrusage` counts those of the process that started it, too.
_PEAK = """
def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


@pytest.fixture
def grown() -> Callable[..., int]:
    """Runs a script in a process; MiB by which its peak of memory grew after its line `before = peak()`."""

    def run(script: str, *arguments: object) -> int:
        assert "before = peak()" in script
        source = f"{_PEAK}{script}\nprint((peak() - before) >> 10)\n"
        command = [sys.executable, "-c", source, *map(str, arguments)]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    return run
