"""Damage to protocol buffers by structure, without knowing their schema: a field of a message at any depth changes, and
all lengths fit again."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from mutations import EXTREMES

#: A varint, bytes of fixed size or with a length, or a message.
Value: TypeAlias = "int | bytes | list[Field]"

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


@dataclass
class Field:
    """One field of a message."""

    number: int
    kind: int
    value: Value


def change_message(data: bytes, source: random.Random) -> bytes:
    """The message after one to three changes."""
    fields = parse(data) or []
    for _ in range(source.choice((1, 1, 2, 3))):
        places = list(_places(fields))
        if places:
            _change(*source.choice(places), places, source)
    return serialize(fields)


def _change(owner: list[Field], index: int, places: list[tuple[list[Field], int]], source: random.Random) -> None:
    if index >= len(owner):
        return  # an earlier change took it away
    field, change = owner[index], source.random()
    others = [
        item.value for fields, at in places if at < len(fields) for item in [fields[at]] if item.kind == field.kind
    ]
    if change < 0.08:
        del owner[index]
    elif change < 0.16:
        owner.insert(index, copy.deepcopy(field))
    elif change < 0.22:
        field.number = source.choice((field.number + 1, max(1, field.number - 1), source.randrange(1, 24)))
    elif change < 0.6 and others:
        field.value = copy.deepcopy(source.choice(others))
    elif isinstance(field.value, int):
        near = [field.value + step for step in (-1, 1, 2, 8)]
        field.value = source.choice((*EXTREMES, *near, *range(12))) & ((1 << 64) - 1)
    elif isinstance(field.value, bytes):
        field.value = _changed_bytes(field.value, field.kind, source)
    else:
        source.shuffle(field.value)


def _changed_bytes(value: bytes, kind: int, source: random.Random) -> bytes:
    if kind == _LENGTH and source.random() < 0.5:
        cut = source.randrange(len(value) + 1)
        return source.choice((value[:cut], value * 2, b"", b"x" * 1000, value + b"\0"))
    if not value:
        return value
    place = source.randrange(len(value))
    return value[:place] + bytes([source.choice((0, 1, 127, 128, 255))]) + value[place + 1 :]


def _places(fields: list[Field]) -> Iterator[tuple[list[Field], int]]:
    """All fields, as places in the messages that have them."""
    for index, field in enumerate(fields):
        yield fields, index
        if isinstance(field.value, list):
            yield from _places(field.value)


# -- the wire format ---------------------------------------------------------------------------------------------------


def parse(data: bytes) -> list[Field] | None:
    """The fields of a message; None if they are not one. Whatever parses as a message is one."""
    fields, at = [], 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            kind, value = key & 7, None
            if kind == _VARINT:
                value, at = _varint(data, at)
            else:
                size, at = _varint(data, at) if kind == _LENGTH else (_SIZES[kind], at)
                if at + size > len(data):
                    return None
                value, at = data[at : at + size], at + size
                if kind == _LENGTH and value:
                    value = parse(value) or value
            if not key >> 3:
                return None
            fields.append(Field(key >> 3, kind, value))
    except (IndexError, KeyError):
        return None
    return fields


def serialize(fields: list[Field]) -> bytes:
    """The bytes of a message."""
    parts = []
    for field in fields:
        parts.append(_number(field.number << 3 | field.kind))
        if isinstance(field.value, int):
            parts.append(_number(field.value))
            continue
        value = serialize(field.value) if isinstance(field.value, list) else field.value
        if field.kind == _LENGTH:
            parts.append(_number(len(value)))
        parts.append(value)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
