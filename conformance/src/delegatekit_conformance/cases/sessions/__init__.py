"""Sessions as a state machine: sequences of a user's actions, with eager as the model of each session."""

from __future__ import annotations

from collections.abc import Iterator

from ..base import Case
from .machine import MACHINES
from .orders import Orders


def cases() -> Iterator[Case]:
    """All of them."""
    yield from MACHINES
    yield Orders()
