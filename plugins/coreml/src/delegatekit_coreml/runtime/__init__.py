"""Executes blobs in this process."""

from .runtime import CoreMLRuntime

__all__ = ["CoreMLRuntime"]
