"""The .pte and .ptd formats: schemas, writers, readers, and the checks before anything runs a file."""

from __future__ import annotations

from .image import Datum, PtdImage, PteImage
from .ptd_reader import PtdFile, StoredData, read_ptd
from .ptd_writer import ptd_to_bytes, write_ptd
from .reader import Header, PteFile, read
from .segments import Data
from .writer import to_bytes, write, write_to

__all__ = [
    "Data",
    "Datum",
    "Header",
    "PtdFile",
    "PtdImage",
    "PteFile",
    "PteImage",
    "StoredData",
    "ptd_to_bytes",
    "read",
    "read_ptd",
    "to_bytes",
    "write",
    "write_ptd",
    "write_to",
]
