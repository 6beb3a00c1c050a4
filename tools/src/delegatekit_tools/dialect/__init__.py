"""The operators of the edge dialect, and what a backend's support table makes of them."""

from __future__ import annotations

from .closed_set import absence, rewritten_to
from .listing import OperatorListing, operators

__all__ = ["OperatorListing", "absence", "operators", "rewritten_to"]
