"""JSON: written with NaN and infinities as strings; and read from outside, with limits and type checks."""

from __future__ import annotations

from .strict import LARGEST, AnyFloat, cut_off, decoded, objects, parse, parse_object, read_object, said
from .written import plain, to_json

__all__ = [
    "LARGEST",
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
