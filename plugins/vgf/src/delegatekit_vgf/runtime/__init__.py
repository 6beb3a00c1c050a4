"""The delegate on this machine."""

from .host import VgfRuntime

__all__ = ["VgfRuntime"]
