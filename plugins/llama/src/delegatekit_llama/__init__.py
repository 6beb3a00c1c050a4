"""Attention over a cache for DelegateKit, by ExecuTorch's fused operators: `delegatekit_llama.attention`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ir.attention import attention

__all__ = ["attention"]


def __getattr__(name: str) -> Any:
    if name != "attention":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = import_module(".ir.attention", __name__).attention
    return value
