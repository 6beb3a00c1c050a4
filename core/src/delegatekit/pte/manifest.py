"""Who made a .pte and its delegates: the named data "delegatekit.manifest", JSON written by emission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .reader import PteFile

#: Key of the manifest among the file's named data.
MANIFEST_KEY = "delegatekit.manifest"
#: JSON unfolds to many times its size in memory: what is longer is not ours.
_LARGEST = 4 << 20


@dataclass(frozen=True)
class Owner:
    """The plugin that made a delegate; "unknown" in files of other writers."""

    distribution: str = "unknown"
    version: str = "unknown"
    api_version: str = "unknown"


@dataclass(frozen=True)
class Manifest:
    """The tool that wrote a file, and the owners of its delegates by method and index."""

    producer: str = "unknown"
    owners: Mapping[tuple[str, int], Owner] = field(default_factory=dict)
    #: The data files that were written with the .pte, by name ("" is the one that is named as the .pte is), with the
    #: keys of the named data in each.
    data_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: How many outputs each delegate has, by method and index.
    outputs: Mapping[tuple[str, int], int] = field(default_factory=dict)
    #: Names of the buffers that are one in all methods that have them.
    shared_state: frozenset[str] = frozenset()
    #: Names of each method's parameters: those given by position when it was exported, then those given by name.
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def outputs_of(self, method: str) -> dict[int, int]:
        """How many outputs each delegate of a method has."""
        return {index: count for (name, index), count in self.outputs.items() if name == method}

    def owner(self, method: str, index: int) -> Owner:
        """The owner of a method's delegate."""
        return self.owners.get((method, index), Owner())


def read_manifest(file: PteFile) -> Manifest:
    """The file's manifest. What is missing or damaged is "unknown": files of other writers have none."""
    stored = file.named_data.get(MANIFEST_KEY, memoryview(b"{}"))
    if len(stored) > _LARGEST:
        return Manifest()
    try:
        content: Any = json.loads(bytes(stored))
    except (ValueError, RecursionError):
        return Manifest()
    if not isinstance(content, dict):
        return Manifest()
    delegates = content.get("delegates")
    owners = {
        (str(item.get("method")), index): Owner(
            *(str(item.get(key, "unknown")) for key in ("distribution", "version", "api"))
        )
        for item in (delegates if isinstance(delegates, list) else ())
        if isinstance(item, dict) and isinstance(index := item.get("index"), int)
    }
    outputs = {
        (str(item.get("method")), index): count
        for item in (delegates if isinstance(delegates, list) else ())
        if isinstance(item, dict)
        and isinstance(index := item.get("index"), int)
        and isinstance(count := item.get("outputs"), int)
    }
    files = content.get("data_files")
    data_files = {
        name: tuple(key for key in keys if isinstance(key, str))
        for name, keys in (files.items() if isinstance(files, dict) else ())
        if isinstance(keys, list)
    }
    names = content.get("shared_state")
    shared = frozenset(name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))
    lists = content.get("parameters")
    parameters = {
        method: tuple(map(str, names))
        for method, names in (lists.items() if isinstance(lists, dict) else ())
        if isinstance(names, list)
    }
    return Manifest(str(content.get("producer", "unknown")), owners, data_files, outputs, shared, parameters)
