"""Kinds of files that commands write, by suffix and by the start of their content."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .sources import open_file

#: Bytes at the start of a file that are examined.
_START: Final = 256


@dataclass(frozen=True)
class Kind:
    """A kind of file: its suffixes, the usual one first, and the pattern of its first bytes."""

    suffixes: tuple[str, ...]
    start: re.Pattern[bytes]


def _archive(member: bytes) -> re.Pattern[bytes]:
    """The start of a zip archive whose first member matches: .npz files and others are archives, too."""
    return re.compile(rb"PK\x03\x04.{26}" + member, re.DOTALL)


PTE: Final = Kind((".pte",), re.compile(rb".{4}ET12", re.DOTALL))
BPTE: Final = Kind((".bpte",), re.compile(rb".{4}BP08", re.DOTALL))
PT2: Final = Kind((".pt2",), _archive(rb"[^/]*/(data/|models/|archive_|version|serialized_)"))
PT: Final = Kind((".pt", ".pth"), _archive(rb"[^/]*/data\.pkl"))
ETRECORD: Final = Kind((".etrecord", ".bin"), _archive(b"ETRECORD_V0"))
JSON: Final = Kind((".json",), re.compile(rb"\s*[{\[]"))
#: A generated program: all begin like this.
PY: Final = Kind((".py",), re.compile(rb'"""Written by `delegatekit '))
CSV: Final = Kind((".csv",), re.compile(rb"[^\n,;\t]+[,;\t]"))
HTML: Final = Kind((".html", ".htm"), re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE))


def holds_another_kind(path: Path, kind: Kind) -> bool:
    """True if an existing file has neither this kind's suffix nor its start; an empty file holds nothing."""
    if path.suffix in kind.suffixes or not path.is_file():
        return False
    with open_file(path) as file:
        start = file.read(_START)
    return bool(start) and kind.start.match(start) is None
