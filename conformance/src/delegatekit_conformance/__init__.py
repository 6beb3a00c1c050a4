"""The conformance suite: runs cases against an installed backend, each in its own process, and reports verdicts.

    run = Session(Settings("acme", profile="quick", select=("contract",))).run()
    print(len(run.results), "cases,", len(run.faults), "with faults")

Importing this package imports neither torch nor a plugin; each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import PROFILES, Profile
    from .errors import InputError
    from .outcome import CaseResult, Outcome, Verdict
    from .run import Run
    from .session import Interrupted, Listener, Session
    from .settings import Settings

_HOMES = {
    "PROFILES": "context",
    "CaseResult": "outcome",
    "InputError": "errors",
    "Interrupted": "session",
    "Listener": "session",
    "Outcome": "outcome",
    "Profile": "context",
    "Run": "run",
    "Session": "session",
    "Settings": "settings",
    "Verdict": "outcome",
}

__all__ = [
    "PROFILES",
    "CaseResult",
    "InputError",
    "Interrupted",
    "Listener",
    "Outcome",
    "Profile",
    "Run",
    "Session",
    "Settings",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
