"""The file from which an interrupted sweep resumes: a line of JSON for each finished row."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from delegatekit.files import open_file, write_text
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import parse, read_object, said, to_json

from .row import Row

#: Version of the file's format, in its first line.
FORMAT: Final = 2
_HEAD: Final = {"delegatekit_sweep": FORMAT}
_HINT: Final = "give the file that an earlier sweep wrote, or a new one"


class Results:
    """The finished rows, and the file that gets others, if there is one."""

    def __init__(self, path: Path | None) -> None:
        """Read the file, or create it. Raises FormatError for another file, or one that cannot be written."""
        self._path = path
        self.rows: dict[str, Row] = {}
        if path is None:
            return
        if path.exists():
            self._read(path)
        self._write()

    def add(self, row: Row) -> None:
        """Add a row: it is in the file when this returns."""
        self.rows[row.key] = row
        self._write()

    def _write(self) -> None:
        """Rewrite the file atomically: an interrupt or a full disk leaves the old file."""
        if self._path is not None:
            lines = (to_json(item, compact=True) for item in (_HEAD, *self.rows.values()))
            write_text(self._path, "".join(f"{line}\n" for line in lines))

    def _read(self, path: Path) -> None:
        with open_file(path) as file:
            data = file.read()
        *lines, _ = data.split(b"\n")  # an unterminated last line was being written when the sweep was interrupted
        if not data:
            return
        if not lines:
            raise FormatError("holds no results of a sweep", where=str(path), hint=_HINT)
        _check_head(lines[0], str(path))
        for number, line in enumerate(lines[1:], 2):
            where = f"{path}, line {number}"
            row = Row.from_json(parse(line, where, hint=_HINT), where)
            self.rows[row.key] = row


def _check_head(line: bytes, where: str) -> None:
    head = read_object(line)
    if "delegatekit_sweep" not in head:
        raise FormatError("holds no results of a sweep", where=where, hint=_HINT)
    if head != _HEAD:
        raise FormatError(f"has format {said(head['delegatekit_sweep'])}, this version reads {FORMAT}", where=where)
