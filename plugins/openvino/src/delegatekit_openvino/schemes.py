"""Quantization schemes."""

from __future__ import annotations

from typing import Final

from delegatekit_api.schemes import QuantizationScheme

SCHEMES: Final[tuple[QuantizationScheme, ...]] = ()
