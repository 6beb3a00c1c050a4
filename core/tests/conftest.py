"""Measures memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

#: The peak of a process' resident memory in KiB. `getrusage` includes that of the parent process.
_PEAK = """
def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


@pytest.fixture
def grown() -> Callable[..., int]:
    """Runs a script in a process; returns the MiB by which its memory peak grew after its line `before = peak()`."""

    def run(script: str, *arguments: object) -> int:
        assert "before = peak()" in script
        source = f"{_PEAK}{script}\nprint((peak() - before) >> 10)\n"
        command = [sys.executable, "-c", source, *map(str, arguments)]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    return run
