"""What a backend says for its page of the documentation."""

from __future__ import annotations

from ._documentation import BackendDocumentation, OperatorEntry, OperatorTable

__all__ = [
    "BackendDocumentation",
    "OperatorEntry",
    "OperatorTable",
]
