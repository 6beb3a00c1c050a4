"""Two files side by side: what moved from one backend to another, what grew, and what became slower."""

from __future__ import annotations

from .differences import Differences
from .figures import Figure, Moved
from .finding import diff

__all__ = ["Differences", "Figure", "Moved", "diff"]
