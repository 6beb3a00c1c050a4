"""The content of a blob's archive: a model package, and the names of inputs and outputs for the delegate.

Nothing in it depends on time, place or chance: identifiers are hashes of the content.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import parse_object

from .archive import read_archive, write_archive

_METADATA: Final = "metadata.json"
_PACKAGE: Final = "model.mlpackage"
_MANIFEST: Final = f"{_PACKAGE}/Manifest.json"
_DATA: Final = f"{_PACKAGE}/Data/"
_MODEL: Final = "com.apple.CoreML/model.mlmodel"
_WEIGHTS: Final = "com.apple.CoreML/weights"
_WEIGHT_FILE: Final = f"{_WEIGHTS}/weight.bin"
_COMPILED: Final = "model.mlmodelc/"
_AUTHOR: Final = "com.apple.CoreML"
_WHERE: Final = "Core ML blob"


@dataclass(frozen=True)
class Names:
    """Names of inputs and outputs in the delegate's order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """A model's file, its weights (empty if it has none), and names of inputs and outputs in the delegate's order."""

    model: memoryview
    weights: memoryview
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    #: The names for each method, if a model has a function for each of several.
    methods: Mapping[str, Names] = field(default_factory=dict)


def write_package(package: Package, others: Mapping[str, bytes] | None = None) -> list[bytes | memoryview]:
    """The pieces of the blob. `others` are additional files by their paths."""
    digest = _digest(package)
    metadata: dict[str, Any] = {"identifier": identifier_of(package)}
    if package.methods:
        metadata["methods"] = {name: _described(item) for name, item in package.methods.items()}
    else:
        metadata |= _described(package)
    files: dict[str, bytes | memoryview] = {
        _METADATA: _json(metadata),
        _MANIFEST: _manifest(digest, with_weights=len(package.weights) > 0),
        _DATA + _MODEL: package.model,
        **(others or {}),
    }
    if len(package.weights):
        files[_DATA + _WEIGHT_FILE] = package.weights
    return write_archive(files)


def identifier_of(package: Package) -> str:
    """The device's key of a compiled model: a hash of the content."""
    return f"executorch_{_digest(package)}"


def _digest(package: Package) -> str:
    digest = hashlib.sha256(package.model)
    digest.update(package.weights)
    names = [(name, item.inputs, item.outputs) for name, item in package.methods.items()]
    digest.update(json.dumps([package.inputs, package.outputs, *names]).encode())
    return digest.hexdigest()


def _described(names: Names | Package) -> dict[str, list[str]]:
    return {"inputNames": list(names.inputs), "outputNames": list(names.outputs)}


def _manifest(digest: str, *, with_weights: bool) -> bytes:
    """The list of a package's items."""
    items = [("model.mlmodel", _MODEL, "CoreML Model Specification")]
    if with_weights:
        items.append(("weights", _WEIGHTS, "CoreML Model Weights"))
    entries = {
        _identifier(digest, name): {"author": _AUTHOR, "description": description, "name": name, "path": path}
        for name, path, description in items
    }
    return _json(
        {
            "fileFormatVersion": "1.0.0",
            "itemInfoEntries": entries,
            "rootModelIdentifier": _identifier(digest, "model.mlmodel"),
        }
    )


def _identifier(digest: str, name: str) -> str:
    """The package's identifier of an item: by content, where others use a random number."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{digest} {name}")).upper()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=2).encode()


# -- reading -----------------------------------------------------------------------------------------------------------


def read_package(blob: bytes | bytearray | memoryview) -> Package:
    """The package in a blob. Raises FormatError."""
    files = read_archive(blob)
    if any(path.startswith(_COMPILED) for path in files):
        raise FormatError("has a compiled model, which only Apple's devices can run", where=_WHERE)
    metadata = _object(files, _METADATA)
    model, weights = _item(files, _root_model(files)), files.get(_DATA + _WEIGHT_FILE, memoryview(b""))
    if "methods" in metadata:
        return Package(model, weights, methods=_methods(metadata["methods"]))
    return Package(model, weights, _names(metadata, "inputNames", least=0), _names(metadata, "outputNames", least=1))


def _methods(described: Any) -> dict[str, Names]:
    if not isinstance(described, dict) or not all(isinstance(item, dict) for item in described.values()):
        raise FormatError("methods is no table of names", where=f"{_WHERE}, {_METADATA}")
    return {
        name: Names(_names(item, "inputNames", least=0), _names(item, "outputNames", least=1))
        for name, item in described.items()
    }


def _root_model(files: dict[str, memoryview]) -> str:
    """The path of the model's file, from the manifest."""
    manifest = _object(files, _MANIFEST)
    items, root = manifest.get("itemInfoEntries"), manifest.get("rootModelIdentifier")
    entry = items.get(root) if isinstance(items, dict) and isinstance(root, str) else None
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(path, str):
        raise FormatError("names no model", where=f"{_WHERE}, {_MANIFEST}")
    return _DATA + path


def _item(files: dict[str, memoryview], path: str) -> memoryview:
    if path not in files:
        raise FormatError(f"has no {path[:120]}", where=_WHERE)
    return files[path]


def _object(files: dict[str, memoryview], path: str) -> dict[str, Any]:
    return parse_object(_item(files, path), f"{_WHERE}, {path}")


def _names(metadata: dict[str, Any], key: str, *, least: int) -> tuple[str, ...]:
    found = metadata.get(key)
    if not isinstance(found, list) or len(found) < least or not all(isinstance(name, str) for name in found):
        raise FormatError(f"{key} is no list of names", where=f"{_WHERE}, {_METADATA}")
    if len(set(found)) != len(found):
        raise FormatError(f"{key} has a name twice", where=f"{_WHERE}, {_METADATA}")
    return tuple(found)
