"""ETRecords, with which ExecuTorch's Inspector and `delegatekit profile` map runtime events to source lines."""

from __future__ import annotations

from .reading import Record, read_etrecord
from .record import etrecord

__all__ = ["Record", "etrecord", "read_etrecord"]
