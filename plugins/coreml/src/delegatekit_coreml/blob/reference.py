"""The blob of a method that shares its archive with others: a mark, and JSON that names the archive in the file.

The format is that of ExecuTorch's Core ML delegate (1.5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import parse_object

_MARK: Final = b"CMJR"
_VERSION: Final = 1
_WHERE: Final = "Core ML blob, reference"


@dataclass(frozen=True)
class Reference:
    """Key of the archive among the file's named data, and the model's function."""

    key: str
    function: str


def key_of(identifier: str) -> str:
    """The key of an archive by its identifier.

    >>> key_of("executorch_0")
    'coreml_executorch_0'
    """
    return f"coreml_{identifier}"


def write_reference(reference: Reference) -> bytes:
    """The blob.

    >>> write_reference(Reference("coreml_0", "forward"))
    b'CMJR{"version": 1, "key": "coreml_0", "functionName": "forward"}'
    """
    found = {"version": _VERSION, "key": reference.key, "functionName": reference.function}
    return _MARK + json.dumps(found).encode()


def read_reference(blob: memoryview) -> Reference | None:
    """The reference in a blob; None if it is not one. Raises FormatError for a damaged one."""
    if bytes(blob[: len(_MARK)]) != _MARK:
        return None
    found = parse_object(blob[len(_MARK) :], _WHERE)
    if found.get("version") != _VERSION:
        raise FormatError(f"is not of version {_VERSION}", where=_WHERE)
    key, function = found.get("key"), found.get("functionName")
    if not isinstance(key, str) or not isinstance(function, str):
        raise FormatError("names no archive or no function", where=_WHERE)
    return Reference(key, function)
