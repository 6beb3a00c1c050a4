"""DelegateKit's backends inside ExecuTorch: in its export pipeline and in its runtime of the host.

    to_edge_transform_and_lower(program, partitioner=[partitioner("acme"), StockPartitioner()])

Importing this package imports neither ExecuTorch nor torch; each name below is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .partitioning import DelegateKitPartitioner, Refused, partitioner
    from .quantizing import quantizer

#: Name -> its module.
_HOMES: Final = {
    "DelegateKitPartitioner": "partitioning",
    "Refused": "partitioning",
    "partitioner": "partitioning",
    "quantizer": "quantizing",
}

__all__ = ["DelegateKitPartitioner", "Refused", "partitioner", "quantizer"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
