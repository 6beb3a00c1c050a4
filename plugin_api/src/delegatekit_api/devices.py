"""The devices that a backend compiles for, the expected cost of delegates there, and the verifying tools."""

from __future__ import annotations

from ._estimate import Estimate, LayerEstimate, TargetInfo
from ._runtime import Verification

__all__ = [
    "Estimate",
    "LayerEstimate",
    "TargetInfo",
    "Verification",
]
