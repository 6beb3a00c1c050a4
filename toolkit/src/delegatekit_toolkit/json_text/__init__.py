"""JSON: as DelegateKit writes it, with NaN and infinities as texts; and read from outside, within bounds and types."""

from __future__ import annotations

from .strict import AnyFloat, cut_off, decoded, objects, parse, parse_object, read_object, said
from .written import plain, to_json

__all__ = [
    "AnyFloat",
    "cut_off",
    "decoded",
    "objects",
    "parse",
    "parse_object",
    "plain",
    "read_object",
    "said",
    "to_json",
]
