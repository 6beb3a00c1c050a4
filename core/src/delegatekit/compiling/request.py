"""The exchange between this process and a compiler's own: files in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delegatekit_toolkit.json_text import to_json

from .constants import Place

REQUEST: Final = "request.json"
CONSTANTS: Final = "constants.bin"
ERROR: Final = "error.json"


@dataclass(frozen=True)
class Request:
    """A compilation request."""

    backend: str
    #: The backend's options as `BackendOptions.to_mapping` gives them.
    options: Mapping[str, Any]
    #: The contents of the plain programs, and the name of each for messages.
    programs: Sequence[Mapping[str, Any]]
    places: Sequence[str]
    #: The constants of all programs, in order.
    constants: Sequence[Place]
    #: Memory limit for compiling in bytes; None: no limit.
    memory: int | None

    def write(self, folder: Path) -> None:
        """Write it into the folder."""
        (folder / REQUEST).write_text(to_json(self, compact=True), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Request:
        """The request in the folder."""
        content = json.loads((folder / REQUEST).read_text("utf-8"))
        return cls(**{**content, "constants": [Place(**item) for item in content["constants"]]})


def result_place(folder: Path, index: int) -> Path:
    """The path of the packed result of a program."""
    return folder / f"{index}.result"
