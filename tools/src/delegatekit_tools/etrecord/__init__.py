"""ETRecords: what ExecuTorch's Inspector needs to lead events of a runtime back to operators and source lines."""

from __future__ import annotations

from .record import etrecord

__all__ = ["etrecord"]
