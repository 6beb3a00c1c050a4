"""Formatting of estimates, tables and pages for people."""

from __future__ import annotations

from .estimates import layer_lines, summary
from .policy import content_policy
from .table import aligned

__all__ = ["aligned", "content_policy", "layer_lines", "summary"]
