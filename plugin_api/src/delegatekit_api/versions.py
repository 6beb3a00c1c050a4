"""The rule for which plugins a core can load."""

from __future__ import annotations

from ._hooks import PROJECT
from ._version import API_VERSION, ApiVersion, incompatibility

__all__ = [
    "API_VERSION",
    "PROJECT",
    "ApiVersion",
    "incompatibility",
]
