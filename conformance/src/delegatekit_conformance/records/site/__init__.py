"""A static site of many records: pages, badges, and the records themselves with their signatures."""

from __future__ import annotations

from .folder import check_folder, write_folder
from .pages import pages

__all__ = ["check_folder", "pages", "write_folder"]
