"""The devices that a backend compiles for, what its delegates are expected to cost there, and who verifies them."""

from __future__ import annotations

from ._estimate import Estimate, LayerEstimate, TargetInfo
from ._runtime import Verification

__all__ = [
    "Estimate",
    "LayerEstimate",
    "TargetInfo",
    "Verification",
]
