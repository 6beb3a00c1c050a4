"""Pages about a backend, written from what it says in its hooks: operators, options, schemes, targets."""

from __future__ import annotations

from .overview import overview
from .pages import Pages, pages, stale, written
from .tables import operator_section, option_table

__all__ = ["Pages", "operator_section", "option_table", "overview", "pages", "stale", "written"]
