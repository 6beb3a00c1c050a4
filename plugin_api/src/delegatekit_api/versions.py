"""The rule for which plugins a core can load, and what plugins should stop using."""

from __future__ import annotations

from ._deprecations import DEPRECATIONS, OTHER_RELEASES, Deprecation, moved, outlived
from ._hooks import PROJECT
from ._version import API_VERSION, ApiVersion, incompatibility

__all__ = [
    "API_VERSION",
    "DEPRECATIONS",
    "OTHER_RELEASES",
    "PROJECT",
    "ApiVersion",
    "Deprecation",
    "incompatibility",
    "moved",
    "outlived",
]
