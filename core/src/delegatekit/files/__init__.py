"""File access: rules for reading and writing, and for files that could run code while they are loaded.

Every command and function with a path argument uses this package.
"""

from __future__ import annotations

from .archives import Archive, open_archive
from .kinds import BPTE, CSV, ETRECORD, HTML, JSON, PT, PT2, PTE, PY, Kind, holds_another_kind
from .outputs import Writer, check_outputs, shielded, write_files, write_text
from .sources import Source, check_file, open_file, open_view

__all__ = [
    "BPTE",
    "CSV",
    "ETRECORD",
    "HTML",
    "JSON",
    "PT",
    "PT2",
    "PTE",
    "PY",
    "Archive",
    "Kind",
    "Source",
    "Writer",
    "check_file",
    "check_outputs",
    "holds_another_kind",
    "open_archive",
    "open_file",
    "open_view",
    "shielded",
    "write_files",
    "write_text",
]
