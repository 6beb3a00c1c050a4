"""The archive that ExecuTorch's Core ML delegate (1.5) unpacks: files one after the other, then their directory.

The directory is JSON, with its bytes in reverse order, so that a reader finds its beginning at the archive's end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.dataflow import section

#: The runtime's limit for the directory.
_MOST_DIRECTORY: Final = 10 << 20
#: Tried before the limit: directories are small.
_FIRST_LOOK: Final = 64 << 10
_MOST_DEPTH: Final = 16
_FILE, _FOLDER = 0, 1
#: The runtime ignores the root's name.
_ROOT: Final = "lowered_module"
_WHERE: Final = "Core ML blob"


# -- writing -----------------------------------------------------------------------------------------------------------


def write_archive(files: Mapping[str, bytes | memoryview]) -> list[bytes | memoryview]:
    """The pieces of an archive, in order. `files` are contents by path ("model.mlpackage/Manifest.json").

    Raises ValueError for an empty file, on which ExecuTorch's own tools fail.
    """
    tree: dict[str, Any] = {}
    for path, content in sorted(files.items()):
        if not len(content):
            raise ValueError(f"{path} is empty")
        *folders, name = path.split("/")
        folder = tree
        for item in folders:
            folder = folder.setdefault(item, {})
        folder[name] = content
    pieces: list[bytes | memoryview] = []
    nodes: list[dict[str, Any]] = []
    _add(tree, _ROOT, pieces, nodes, 0)
    directory = json.dumps({"nodes": nodes}, separators=(",", ":")).encode()
    return [*pieces, directory[::-1]]


def _add(entry: Any, name: str, pieces: list[bytes | memoryview], nodes: list[dict[str, Any]], offset: int) -> int:
    """Add a file or a folder with its content; return the offset of the next file."""
    children, region = {}, {"offset": 0, "size": 0}
    if isinstance(entry, dict):
        for child, content in entry.items():
            offset = _add(content, child, pieces, nodes, offset)
            children[child] = len(nodes) - 1
    else:
        region = {"offset": offset, "size": len(entry)}
        pieces.append(entry)
        offset += len(entry)
    kind = _FOLDER if isinstance(entry, dict) else _FILE
    nodes.append({"children": children, "dataRegion": region, "kind": kind, "name": name})
    return offset


# -- reading -----------------------------------------------------------------------------------------------------------


def read_archive(blob: bytes | bytearray | memoryview) -> dict[str, memoryview]:
    """The files of an archive by their paths, on the blob's own memory.

    Raises FormatError for a directory that is damaged, has cycles or files outside the archive.
    """
    view = memoryview(blob).cast("B")
    nodes, end = _directory(view)
    files: dict[str, memoryview] = {}
    seen: set[int] = set()
    for path, node in _walk(nodes, len(nodes) - 1, "", seen, 0):
        region = node.get("dataRegion")
        offset, size = (region.get("offset"), region.get("size")) if isinstance(region, dict) else (None, None)
        if type(offset) is not int or type(size) is not int:
            raise FormatError("has no region", where=f"{_WHERE}, {path}")
        files[path] = section(view[:end], offset, size, f"{_WHERE}, {path}")
    return files


def _directory(view: memoryview) -> tuple[list[Any], int]:
    """The nodes of the directory, and its offset."""
    text, ended = "", 0
    for look in (_FIRST_LOOK, _MOST_DIRECTORY):
        tail = bytes(view[-look:])[::-1]
        padding = len(tail) - len(tail.lstrip(b"\0 \t\r\n"))
        text = tail[padding:].decode("utf-8", errors="replace")
        if not text.startswith("{"):
            raise FormatError("does not end with a directory", where=_WHERE)
        try:
            found, ended = json.JSONDecoder().raw_decode(text)
            break
        except (ValueError, RecursionError):
            found = None
    nodes = found.get("nodes") if isinstance(found, dict) else None
    if not isinstance(nodes, list) or not nodes or "\ufffd" in text[:ended]:
        raise FormatError("its directory is damaged", where=_WHERE)
    return nodes, len(view) - padding - len(text[:ended].encode())


def _walk(nodes: list[Any], index: int, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files under a node, with their paths. Each node is reached once."""
    where = f"{_WHERE}, {path[:80] or 'root'}"
    if index in seen or depth > _MOST_DEPTH:
        raise FormatError("its directory is no tree", where=where)
    seen.add(index)
    node = nodes[index]
    children = node.get("children") if isinstance(node, dict) else None
    if not isinstance(children, dict) or node.get("kind") not in (_FILE, _FOLDER):
        raise FormatError("is neither a file nor a folder", where=where)
    if node["kind"] == _FILE:
        if not path:
            raise FormatError("is no folder", where=where)
        yield path, node
        return
    for name, child in sorted(children.items()):
        if type(child) is not int or not 0 <= child < len(nodes):
            raise FormatError(f"names node {child!r:.20} of {len(nodes)}", where=where)
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise FormatError(f"has an entry {name!r:.40}", where=where)
        yield from _walk(nodes, child, f"{path}/{name}" if path else name, seen, depth + 1)
