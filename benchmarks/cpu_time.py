"""CPU seconds of a command and of all processes that it starts, also of those that outlive it (Linux).

python benchmarks/cpu_time.py delegatekit conform xnnpack --quick
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time

#: Makes processes that lose their parent children of this one (linux/prctl.h).
_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the command of the arguments; print what it took to stderr, and end as it did."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start, code = time.monotonic(), 1
    command = subprocess.Popen(sys.argv[1:])
    while True:
        try:
            process, status = os.wait()
        except ChildProcessError:
            break
        if process == command.pid:
            code = os.waitstatus_to_exitcode(status)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(f"{seconds:.0f} CPU seconds in {time.monotonic() - start:.0f} s", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
