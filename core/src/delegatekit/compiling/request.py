"""What passes between this process and a compiler's own: files in a folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delegatekit_toolkit.json_text import to_json

from .constants import Place

REQUEST: Final = "request.json"
CONSTANTS: Final = "constants.bin"
RESULTS: Final = "results.bin"
ERROR: Final = "error.json"

_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class Request:
    """What is to be compiled."""

    backend: str
    #: The backend's options as `BackendOptions.to_mapping` gives them.
    options: Mapping[str, Any]
    #: The contents of the plain programs, and how messages name each.
    programs: Sequence[Mapping[str, Any]]
    places: Sequence[str]
    #: The constants of all programs, in order.
    constants: Sequence[Place]
    #: Bytes of memory that compiling may take; None: no limit.
    memory: int | None

    def write(self, folder: Path) -> None:
        """Put it into the folder."""
        (folder / REQUEST).write_text(to_json(self, compact=True), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Request:
        """The request that lies in the folder."""
        content = json.loads((folder / REQUEST).read_text("utf-8"))
        return cls(**{**content, "constants": [Place(**item) for item in content["constants"]]})


def write_results(path: Path, packed: Sequence[bytes]) -> None:
    """Write packed results into one file, which appears whole."""
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        for item in packed:
            file.write(_LENGTH.pack(len(item)))
            file.write(item)
    unfinished.replace(path)


def read_results(path: Path) -> list[memoryview]:
    """The packed results of such a file."""
    rest = memoryview(path.read_bytes())
    found = []
    while rest:
        (length,) = _LENGTH.unpack_from(rest)
        found.append(rest[_LENGTH.size : _LENGTH.size + length])
        rest = rest[_LENGTH.size + length :]
    return found
