"""Formatting of foreign texts for people."""

from __future__ import annotations

from .foreign import indented, one_line, one_lined, visible

__all__ = ["indented", "one_line", "one_lined", "visible"]
