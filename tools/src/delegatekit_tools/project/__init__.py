"""Projects of backends: made of templates that lie in this package, and brought to newer ones later."""

from __future__ import annotations

from .making import Project, create, update
from .templates import DEFAULT

__all__ = ["DEFAULT", "Project", "create", "update"]
