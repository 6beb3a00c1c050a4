"""ETRecords: what ExecuTorch's Inspector needs to lead events of a runtime back to operators and source lines."""

from __future__ import annotations

from .record import RecordedMethod, write_etrecord

__all__ = ["RecordedMethod", "write_etrecord"]
