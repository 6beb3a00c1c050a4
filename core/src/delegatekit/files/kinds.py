"""Kinds of files that commands write, by suffix and by how their content begins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .sources import open_file

#: Bytes at the start of a file that are looked at.
_START: Final = 256


@dataclass(frozen=True)
class Kind:
    """A kind of file: its suffixes, the usual one first, and what the first bytes of one match."""

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
#: A program of ours: every one begins so.
PY: Final = Kind((".py",), re.compile(rb'"""Written by `delegatekit '))
CSV: Final = Kind((".csv",), re.compile(rb"[^\n,;\t]+[,;\t]"))
HTML: Final = Kind((".html", ".htm"), re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE))


def holds_another_kind(path: Path, kind: Kind) -> bool:
    """Whether there is a file that is neither named as this kind is nor begins as one; an empty file holds nothing."""
    if path.suffix in kind.suffixes or not path.is_file():
        return False
    with open_file(path) as file:
        start = file.read(_START)
    return bool(start) and kind.start.match(start) is None
