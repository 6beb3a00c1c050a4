"""The conformance suite: runs cases against an installed backend, each in its own process, and reports verdicts."""

from __future__ import annotations

from .outcome import CaseResult, Outcome, Verdict

__all__ = ["CaseResult", "Outcome", "Verdict"]
