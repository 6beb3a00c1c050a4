"""Hypothesis strategies of recipes: for each operator the valid arguments, shapes, dtypes and layouts.

`OPERATORS` holds one entry for each operator; nothing here knows of backends or verdicts.
"""

from __future__ import annotations

from .registry import OperatorStrategy, load_operators

__all__ = ["OperatorStrategy", "load_operators"]
