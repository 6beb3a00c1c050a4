"""Patterns: what backends fuse, fold and rewrite, as small modules, each with eager's numbers as the reference.

A builder uses nothing but torch: its text is the snippet that a report shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..base import Case

# Importing the rooms registers what is in them, in the order of reports.
from . import convolutions, linear, attention, algebra, misses  # isort: skip
from .register import pattern

__all__ = ["algebra", "attention", "cases", "convolutions", "linear", "misses", "pattern"]


def cases() -> Iterator[Case]:
    """All patterns."""
    yield from pattern.cases.values()
