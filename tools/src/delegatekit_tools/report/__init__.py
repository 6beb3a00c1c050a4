"""The report of a lowering: delegates, the runtime's operators, memory and constants; and a row for each node."""

from __future__ import annotations

from .arenas import ArenaReport
from .report import DelegateReport, MethodReport, Report, report
from .special_values import special_values

__all__ = ["ArenaReport", "DelegateReport", "MethodReport", "Report", "report", "special_values"]
