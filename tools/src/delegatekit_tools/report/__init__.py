"""The report of a lowering: delegates, the runtime's operators, memory and constants; and a row for each node."""

from __future__ import annotations

from .report import DelegateReport, MethodReport, Report, report

__all__ = ["DelegateReport", "MethodReport", "Report", "report"]
