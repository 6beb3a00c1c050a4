"""The watch over a process' settings: it must not disturb the process."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import gc, weakref
from delegatekit_conformance.cases.surroundings import Watch

class Cycle:
    def __init__(self):
        self.itself = self

watch, seen = Watch(active=True), []
weakref.finalize(Cycle(), lambda: seen.append(watch.look()))
gc.collect()
print(seen, watch.look() is not None)
"""


def test_nothing_is_looked_at_while_the_garbage_collector_works() -> None:
    """It may begin inside of a function of torch that holds the lock of the random numbers, which a look would take."""
    # In a process of its own: the watch looks only where there are no other threads.
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[None] True\n", done.stderr
