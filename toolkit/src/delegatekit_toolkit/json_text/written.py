"""JSON output of DelegateKit; `strict` reads it.

The output is always valid JSON: NaN and infinities, for which JSON has no numbers, are the strings "NaN", "Infinity"
and "-Infinity", as Protocol Buffers write them. Python's `float` reads all three.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import Any


def to_json(value: Any, *, indent: int | None = 1, sort_keys: bool = False, compact: bool = False) -> str:
    """The value as JSON; `compact` omits all spaces, `sort_keys` makes the text independent of the keys' order.

    Dataclasses become objects of their fields, sequences and sets (in order) lists, enumeration members their values,
    and objects of other types their `str`.

    >>> to_json({"error": float("inf"), "shape": (2, 3)}, indent=None)
    '{"error": "Infinity", "shape": [2, 3]}'
    """
    separators = (",", ":") if compact else None
    layout = {"indent": None if compact else indent, "sort_keys": sort_keys, "separators": separators}
    # The only control character that JSON does not escape.
    return json.dumps(plain(value), allow_nan=False, **layout).replace("\x7f", "\\u007f")  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """The value in JSON types: dicts, lists, strings, finite numbers, true, false and null."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(map(plain, value), key=str)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(map(plain, value))
    return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _key(key: Any) -> str | int:
    """Keys are strings in JSON; numbers are converted."""
    return key if isinstance(key, str | int) else str(key)
