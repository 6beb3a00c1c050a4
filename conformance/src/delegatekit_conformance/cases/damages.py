"""Damages of formats whose numbers are not words at multiples of four: varints, single bytes and digits.

A word of four bytes that is replaced there changes several fields at once, and the first check refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Text without digits, and keys: no numbers are there.
_TEXT = re.compile(rb"[\x20-\x2f\x3a-\x7e]{3,}|[0-9A-Za-z]{20,}")
_DIGITS = b"0123456789"
#: Numbers below these may be sizes: of a byte, and of a word.
_BYTE, _WORD = 1 << 7, 1 << 16

#: Replacements of a byte; a larger one is a part of a number with more bytes.
NUMBERS: Sequence[tuple[str, Callable[[int], int]]] = (
    ("set to 0", lambda byte: 0),
    ("one more", lambda byte: byte + 1),
    ("set to 127", lambda byte: 127),
    ("one less", lambda byte: byte - 1),
    ("set to 1", lambda byte: 1),
)


def words_of(data: bytes) -> memoryview:
    """The aligned words of four bytes; the remainder at the end is no word."""
    return memoryview(data[: len(data) // 4 * 4]).cast("I")


def has_words(data: bytes) -> bool:
    """True if the numbers of a format are words: the last byte of many, small ones, is zero."""
    last = data[3::4]
    return 4 * last.count(0) > len(last)


def places(data: bytes) -> list[int]:
    """The bytes of a format without words that may be numbers, digits in its texts among them."""
    found: list[int] = []
    start = 0
    for match in _TEXT.finditer(data):
        found += range(start, match.start())
        start = match.end()
    return [*found, *range(start, len(data))]


def byte_replaced(data: bytes, place: int, number: int) -> Iterator[tuple[bytes, str]]:
    """The blob with a byte replaced by one of `NUMBERS`, and the change in words; nothing if it stays the same."""
    name, change = NUMBERS[number % len(NUMBERS)]
    before = data[place]
    if before in _DIGITS:
        after = _DIGITS[min(max(change(before - _DIGITS[0]), 0), 9)]
    else:
        after = change(before) & 0xFF
    if after != before:
        yield data[:place] + bytes((after,)) + data[place + 1 :], f"byte {place} of {len(data)} {name}"


@dataclass(frozen=True)
class Balanced:
    """Two adjacent numbers, one of them one more and the other one less: their sum stays.

    Derived values of the sum, such as the size of a result, stay, so that a check of them finds nothing.
    """

    program: str
    choice: int
    #: This many pairs are tried at most, each both ways.
    most: int

    def describe(self) -> str:
        """One line."""
        return f"{self.program}: of neighbors in blob {self.choice} one is one more and the other one less"

    def damages(self, data: bytes) -> Iterator[tuple[bytes, str]]:
        """The damaged blobs, one at a time."""
        pairs = list(_pairs(data))
        size = 4 if has_words(data) else 1
        for first, second in pairs[:: max(1, -(-len(pairs) // max(1, self.most)))]:
            for more, less in ((first, second), (second, first)):
                blob = bytearray(data)
                for place, step in ((more, 1), (less, -1)):
                    number = int.from_bytes(data[place : place + size], "little") + step
                    blob[place : place + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
                yield bytes(blob), f"byte {more} of {len(data)} one more, byte {less} one less"


def _pairs(data: bytes) -> Iterator[tuple[int, int]]:
    """Places of adjacent small numbers: words, where zero becomes -1, or bytes, where it cannot."""
    if has_words(data):
        words = words_of(data)
        for place in range(len(words) - 1):
            if words[place] < _WORD and words[place + 1] < _WORD:
                yield 4 * place, 4 * place + 4
        return
    numbers = places(data)
    for digits, least, most, apart in ((False, 0, _BYTE - 1, 1), (True, _DIGITS[0], _DIGITS[-1], 3)):
        # Between digits of a list there are a comma and perhaps a space.
        alone = [place for place in numbers if (data[place] in _DIGITS) == digits]
        for one, other in pairwise(alone):
            if other - one <= apart and all(least < data[place] < most for place in (one, other)):
                yield one, other


def alike(data: bytes, most: int, most_places: int) -> Iterator[tuple[bytes, str]]:
    """Blobs in which a byte is replaced everywhere after the same byte, such as a field's tag."""
    known: dict[bytes, list[int]] = {}
    for place in places(data):
        if place and 0 < data[place] < _BYTE:
            known.setdefault(data[place - 1 : place + 1], []).append(place)
    several = sorted((found for found in known.values() if 1 < len(found) <= most_places), key=len, reverse=True)
    for found in several[:most]:
        for number in range(len(NUMBERS)):
            after = bytearray(data)
            name = ""
            for place in found:
                for blob, what in byte_replaced(data, place, number):
                    after[place], name = blob[place], what.partition(f" of {len(data)} ")[2]
            if name:
                yield bytes(after), f"{len(found)} bytes, the first at byte {found[0]} of {len(data)}, {name}"
