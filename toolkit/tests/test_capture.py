"""Redirection of what libraries print to stderr, at the level of file descriptors."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import os, sys
from delegatekit_toolkit.capture import quiet
print("before")
with quiet("Warning"):
    print("from Python")
    os.write(1, b"from below\\nWarning: old\\n")
    os.system("echo from a child")
try:
    with quiet():
        print("ahead of an error")
        raise KeyError
except KeyError:
    pass
print("after")
"""


def test_only_what_the_program_prints_is_on_stdout() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["before", "after", ""]
    assert sorted(done.stderr.splitlines()) == ["ahead of an error", "from Python", "from a child", "from below"]


def test_descriptors_are_given_back() -> None:
    from delegatekit_toolkit.capture import quiet

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with quiet():
            pass
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_unwanted_lines_are_kept_off_stderr_and_others_stay() -> None:
    code = (
        "import os\nfrom delegatekit_toolkit.capture import quiet\n"
        "with quiet('[noise', descriptor=2):\n    os.write(2, b'[noise.cpp:1] a\\nan error\\n')\n    print('result')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("result\n", "an error\n")


def test_a_closed_descriptor_is_no_error() -> None:
    code = (
        "import os\nos.close(2)\nfrom delegatekit_toolkit.capture import quiet\n"
        "with quiet(descriptor=2):\n    print('result')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "result\n"
