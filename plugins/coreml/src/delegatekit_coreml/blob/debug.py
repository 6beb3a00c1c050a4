"""The files from which ExecuTorch's profiler finds the operators that an operation of MIL came from.

The format is that of ExecuTorch 1.5; only its profiler reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

_INFO: Final = "debug_info.json"
_MAPPING: Final = "model.mlpackage/executorch_debug_handle_mapping.json"


def debug_files(handles: Mapping[int | str, Sequence[int]], version: str) -> dict[str, bytes]:
    """Files of a package by their paths. `handles` are by symbols (`ir.program.symbol`), `version` is coremltools'."""
    paths = {str(name): _path(str(name)) for name in handles}
    mapping: dict[str, list[list[dict[str, str]]]] = {}
    for name, found in handles.items():
        for handle in found:
            mapping.setdefault(str(handle), []).append(paths[str(name)])
    info = {
        "versionInfo": version,
        "debugSymbolToOperationPath": paths,
        "debugSymbolToHandles": {str(name): list(found) for name, found in handles.items()},
    }
    return {_INFO: _json(info), _MAPPING: _json({"version": version, "mapping": mapping})}


def _path(name: str) -> list[dict[str, str]]:
    """The position of an operation in the program."""
    output, _, kind = name.rpartition(":")
    return [
        {"Type": "Program"},
        {"Type": "Function", "Name": "main"},
        {"Type": "Block"},
        {"Type": "Operation", "Operator": kind, "Output": output},
    ]


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
