"""Programs bundled with inputs and expected outputs, in ExecuTorch's format: created, and verified on the engine."""

from __future__ import annotations

from .cases import Case
from .file import Bundle, read_bundle
from .making import BundledProgram, bundle
from .verifying import CaseResult, Difference, Verification, verify

__all__ = [
    "Bundle",
    "BundledProgram",
    "Case",
    "CaseResult",
    "Difference",
    "Verification",
    "bundle",
    "read_bundle",
    "verify",
]
