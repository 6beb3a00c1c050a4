"""The blob: its format, written and read."""

from __future__ import annotations

from .form import NAMES, SEAL, read_blob, write_blob

__all__ = ["NAMES", "SEAL", "read_blob", "write_blob"]
