"""The .pte format: schema, writer, reader, and the checks that a file must pass before anything runs it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from .image import Data, PteImage
from .reader import Header, PteFile, read
from .writer import to_bytes, write, write_to

__all__ = ["Data", "Header", "PteFile", "PteImage", "read", "runtime_operators", "to_bytes", "write", "write_to"]


@cache
def runtime_operators() -> frozenset[str]:
    """Names of the kernels that the stock ExecuTorch 1.5 runtime registers: "aten::add.out"."""
    return frozenset(files(__package__).joinpath("runtime_operators.txt").read_text("utf-8").split())
