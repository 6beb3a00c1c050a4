"""ETRecords, with which ExecuTorch's Inspector maps runtime events to operators and source lines."""

from __future__ import annotations

from .record import etrecord

__all__ = ["etrecord"]
