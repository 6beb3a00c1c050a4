"""What an ETRecord beside a program tells about the insides of its delegates."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from delegatekit_api import FormatError

from ..files import open_file
from ..pte import schema

#: Members that are read have so many bytes at most.
_LARGEST: Final = 256 << 20


class Record:
    """The nodes of each method's edge program, by the instruction that computes them."""

    def __init__(self, path: Path) -> None:
        """Raises FormatError for what is no ETRecord."""
        self._path = path
        try:
            with open_file(path) as file, zipfile.ZipFile(file) as archive:
                self._handles = self._read(archive, "debug_handle_map")
                self._delegates = self._read(archive, "delegate_map")
                self._nodes = {name: list(self._of_method(archive, name)) for name in self._handles}
        except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            what = f"is no ETRecord: {error!r}"
            raise FormatError(what, where=str(path), hint="`lower --etrecord` writes one") from None

    def check(self, method: str, instructions: Sequence[Any]) -> None:
        """Raise FormatError if the record is of another program than the one with these instructions."""
        delegates = {str(index) for index, call in enumerate(instructions) if isinstance(call, schema.DelegateCall)}
        handles, known = self._handles.get(method), self._delegates.get(method)
        fits = isinstance(handles, dict) and isinstance(known, dict) and known.keys() == delegates
        if not fits or len(handles or ()) != len(instructions):
            hint = "lower the model with --etrecord again, or move the record away"
            raise FormatError(f"is of another program: method {method} differs", where=str(self._path), hint=hint)

    def inside(self, method: str, instruction: int) -> Sequence[dict[str, Any]]:
        """The nodes that an instruction computes, as the record has them; none if it does not know."""
        handles = self._handles.get(method, {}).get(str(instruction), ())
        wanted = {str(handle) for handle in (handles if isinstance(handles, list) else [handles])}
        return [node for node in self._nodes.get(method, ()) if node["metadata"].get("debug_handle") in wanted]

    def _of_method(self, archive: zipfile.ZipFile, name: str) -> Iterator[dict[str, Any]]:
        for member in (f"edge_dialect_exported_program/{name}", f"methods/{name}"):
            if member in archive.namelist():
                for node in self._read(archive, member)["graph_module"]["graph"]["nodes"]:
                    yield {key: node[key] for key in ("name", "target", "inputs", "outputs", "metadata")}
                return

    def _read(self, archive: zipfile.ZipFile, member: str) -> dict[str, Any]:
        if archive.getinfo(member).file_size > _LARGEST:
            raise ValueError(f"{member} is too large")
        content = json.loads(archive.read(member))
        if not isinstance(content, dict):
            raise TypeError(f"{member} is no object")
        return content
