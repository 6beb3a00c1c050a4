"""Quantization schemes that a backend declares; core turns them into annotations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizationScheme:
    """One way to quantize for a backend.

    This release carries the name and summary only; what a scheme declares per operator is added in a minor version.
    """

    name: str
    summary: str
