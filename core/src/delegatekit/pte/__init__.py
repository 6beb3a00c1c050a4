"""The .pte and .ptd formats: schemas, writers, readers, and the checks before anything runs a file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from .image import Datum, PtdImage, PteImage
from .ptd_reader import PtdFile, StoredData, read_ptd
from .ptd_writer import ptd_to_bytes, write_ptd
from .reader import Header, PteFile, read
from .segments import Data
from .storage import Source
from .writer import to_bytes, write, write_to

__all__ = [
    "Data",
    "Datum",
    "Header",
    "PtdFile",
    "PtdImage",
    "PteFile",
    "PteImage",
    "Source",
    "StoredData",
    "ptd_to_bytes",
    "read",
    "read_ptd",
    "runtime_operators",
    "to_bytes",
    "write",
    "write_ptd",
    "write_to",
]


@cache
def runtime_operators() -> frozenset[str]:
    """Names of the kernels that the stock ExecuTorch 1.5 runtime registers: "aten::add.out"."""
    return frozenset(files(__package__).joinpath("runtime_operators.txt").read_text("utf-8").split())
