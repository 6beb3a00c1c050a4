"""Observer plugins: the hooks of the group `delegatekit.observers`, and their events."""

from __future__ import annotations

from ._hooks import ObserverSpec, StageEvent, SuiteSpec

__all__ = [
    "ObserverSpec",
    "StageEvent",
    "SuiteSpec",
]
