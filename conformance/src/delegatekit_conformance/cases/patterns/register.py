"""The register of patterns."""

from __future__ import annotations

from ..subjects import Register

pattern = Register("patterns", measure=True, cost=0.5)
