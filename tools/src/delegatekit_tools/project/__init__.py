"""Projects of backends: made of a template that lies in this package, and brought to a newer one later."""

from __future__ import annotations

from .making import Project, create, update

__all__ = ["Project", "create", "update"]
