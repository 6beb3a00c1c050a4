"""The names of the stock runtime's own kernels."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def runtime_operators() -> frozenset[str]:
    """Names of the kernels that the stock ExecuTorch 1.5 runtime registers: "aten::add.out"."""
    return frozenset(files(__package__).joinpath("runtime_operators.txt").read_text("utf-8").split())


def library_of(name: str) -> str | None:
    """The library that brings a kernel, by its namespace: "acme" of "acme::add.out"; None for the runtime's own."""
    namespace = name.partition("::")[0]
    return None if namespace in _own_namespaces() else namespace


@cache
def _own_namespaces() -> frozenset[str]:
    return frozenset(name.partition("::")[0] for name in runtime_operators())
