"""The watch over a process' settings: it must not disturb what it watches."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from delegatekit_conformance.cases.surroundings import Watch


class Cycle:
    """An object that only the garbage collector ends."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_looked_at_while_the_garbage_collector_works() -> None:
    """It may begin inside of a function of torch that holds the lock of the random numbers, which a look would take."""
    watch = Watch(active=True)
    seen: list[Any] = []
    weakref.finalize(Cycle(), lambda: seen.append(watch.look()))
    gc.collect()
    assert seen == [None]
    assert watch.look() is not None
