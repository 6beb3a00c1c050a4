"""The names of the stock runtime's own kernels."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def runtime_operators() -> frozenset[str]:
    """Names of the kernels that the stock ExecuTorch 1.5 runtime registers: "aten::add.out"."""
    return frozenset(files(__package__).joinpath("runtime_operators.txt").read_text("utf-8").split())
