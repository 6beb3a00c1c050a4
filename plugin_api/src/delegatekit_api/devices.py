"""The devices that a backend compiles for, and what its delegates are expected to cost there."""

from __future__ import annotations

from ._estimate import Estimate, LayerEstimate, TargetInfo

__all__ = [
    "Estimate",
    "LayerEstimate",
    "TargetInfo",
]
