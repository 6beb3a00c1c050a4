"""The backend's part of its documentation page."""

from __future__ import annotations

from ._documentation import BackendDocumentation, OperatorEntry, OperatorTable

__all__ = [
    "BackendDocumentation",
    "OperatorEntry",
    "OperatorTable",
]
