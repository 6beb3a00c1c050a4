"""The file by which a sweep goes on after an interrupt: a line of JSON for each row that is ready."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from delegatekit_api import FormatError

from ..files import open_file
from ..json_text import to_json
from .row import Row

#: Version of the file's format, in its first line.
FORMAT: Final = 1
_HEAD: Final = {"delegatekit_sweep": FORMAT}
_HINT: Final = "give the file that an earlier sweep wrote, or a new one"


class Results:
    """The rows that are known, and the file that gets others, if there is one."""

    def __init__(self, path: Path | None) -> None:
        """Read the file, or begin it. Raises FormatError for another file, or one that cannot be written."""
        self._path = path
        self.rows: dict[str, Row] = {}
        if path is None:
            return
        if path.exists():
            self._read(path)
        self._write([to_json(_HEAD, compact=True), *(to_json(row, compact=True) for row in self.rows.values())])

    def add(self, row: Row) -> None:
        """Keep a row: it is in the file when this returns."""
        self.rows[row.key] = row
        if self._path is not None:
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(to_json(row, compact=True) + "\n")
            except OSError as error:
                raise FormatError(f"cannot be written: {error.strerror}", where=str(self._path)) from error

    def _read(self, path: Path) -> None:
        with open_file(path) as file:
            lines = bytes(file.read()).decode("utf-8", "replace").splitlines()
        if not lines:
            return
        head = _parsed(lines[0])
        if not isinstance(head, dict) or "delegatekit_sweep" not in head:
            raise FormatError("holds no results of a sweep", where=str(path), hint=_HINT)
        if head != _HEAD:
            raise FormatError(f"has format {head['delegatekit_sweep']}, this version reads {FORMAT}", where=str(path))
        for number, line in enumerate(lines[1:], 2):
            try:
                row = Row.from_json(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if number == len(lines):
                    break  # it was being written when the sweep was interrupted
                what = f"line {number} is no row: {type(error).__name__}: {error}"
                raise FormatError(what, where=str(path), hint=_HINT) from None
            self.rows[row.key] = row

    def _write(self, lines: list[str]) -> None:
        assert self._path is not None
        unfinished = self._path.with_name(f".{self._path.name}.part")
        try:
            unfinished.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            unfinished.replace(self._path)
        except OSError as error:
            raise FormatError(f"cannot be written: {error.strerror}", where=str(self._path)) from error


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
