"""Reads an ETRecord, ours or ExecuTorch's own: the nodes of its edge programs, and where instructions come from.

Only its JSON is read; tensors and pickles are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from delegatekit.files import Archive, open_archive
from delegatekit_api import FormatError
from delegatekit_api.nodes import source_line
from delegatekit_toolkit.json_text import cut_off, decoded, objects, parse_object

_IDENTIFIER: Final = "ETRECORD_V0"
#: Folders of edge programs by method: ExecuTorch's, and ours of methods besides the main one.
_FOLDERS: Final = ("edge_dialect_exported_program", "methods")
_HINT: Final = "`lower --etrecord` or ExecuTorch's `generate_etrecord=True` writes one"
_OTHER: Final = "give the ETRecord that was written together with this file"
#: Starts of the names of functions in ExecuTorch's edge dialect and in ATen.
_DIALECTS: Final = ("executorch.exir.dialects.edge.ops.", "torch.ops.")


@dataclass(frozen=True)
class Node:
    """The operators of the program that a debug handle stands for, their module's path, and their source line."""

    operators: tuple[str, ...]
    module: str
    source: str


@dataclass(frozen=True)
class Inside:
    """The operators of a delegate: debug handles by the backend's keys, and the nodes that these mean."""

    operators: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, Node]


@dataclass(frozen=True)
class RecordedMethod:
    """What an ETRecord knows of a method; the operators of delegates by the position of the instruction."""

    nodes: Mapping[str, Node]
    handles: Mapping[int, tuple[int, ...]]
    inside: Mapping[int, Inside]


@dataclass(frozen=True)
class _Delegate:
    name: str
    delegate_map: Mapping[str, int | tuple[int, ...]]


@dataclass(frozen=True)
class Record:
    """An ETRecord. It names no file that it is of: its instructions must be those of the file."""

    name: str
    _nodes: Mapping[str, Mapping[str, Node]]
    _handles: Mapping[str, Mapping[str, int | tuple[int, ...]]]
    _delegates: Mapping[str, Mapping[str, _Delegate]]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods whose instructions it knows."""
        return tuple(self._handles)

    def of(self, method: str, calls: Sequence[str]) -> RecordedMethod:
        """What is known of a method; `calls` are the callees of the file's instructions.

        Raises FormatError for a method that is not there, and for one of another file.
        """
        if method not in self._handles:
            known = ", ".join(self.methods) or "none"
            raise FormatError(f"has no method {method!r} (methods: {known})", where=self.name, hint=_OTHER)
        nodes = self._nodes.get(method, {})
        handles = {self._number(position): _several(found) for position, found in self._handles[method].items()}
        delegates = {self._number(position): found for position, found in self._delegates.get(method, {}).items()}
        self._check(calls, handles, delegates)
        inside = {
            position: Inside({key: _several(found) for key, found in delegate.delegate_map.items()}, nodes)
            for position, delegate in delegates.items()
        }
        return RecordedMethod(nodes, handles, inside)

    def _number(self, position: str) -> int:
        if not position.isdecimal() or len(position) > 9:
            raise FormatError(f"names an instruction {cut_off(position)!r}", where=self.name, hint=_HINT)
        return int(position)

    def _check(self, calls: Sequence[str], handles: Mapping[int, Any], delegates: Mapping[int, _Delegate]) -> None:
        there = {position for position, name in enumerate(calls) if name.partition(" ")[0] == "delegate"}
        what = ""
        if max(handles, default=-1) >= len(calls):
            what = f"it has an instruction {max(handles)}, the file {len(calls)} instructions"
        elif delegates.keys() != there:
            place = min(delegates.keys() ^ there)
            what = f"instruction {place} calls {'a delegate' if place in delegates else 'no delegate'} there, "
            what += f"{calls[place] if place < len(calls) else 'nothing'} in the file"
        if what:
            raise FormatError(f"is of another file: {what}", where=self.name, hint=_OTHER)


def read_etrecord(path: str | Path) -> Record:
    """Read an ETRecord that `lower --etrecord` or ExecuTorch wrote. Raises FormatError for a file that is none."""
    with open_archive(path, "ETRecord", hint=_HINT) as archive:
        if _IDENTIFIER not in archive.names:
            raise FormatError("is no ETRecord", where=str(path), hint=_HINT)
        nodes = {}
        for name in archive.names:
            folder, _, method = name.partition("/")
            if folder in _FOLDERS and f"{name}_state_dict" in archive.names:
                nodes[method or "forward"] = _nodes(_member(archive, path, name))
        handles = _decoded(archive, path, "debug_handle_map", Mapping[str, Mapping[str, int | tuple[int, ...]]])
        delegates = _decoded(archive, path, "delegate_map", Mapping[str, Mapping[str, _Delegate]])
    return Record(str(path), nodes, handles, delegates)


def _member(archive: Archive, path: str | Path, name: str) -> dict[str, Any]:
    # PyTorch writes infinities as Python spells them, which JSON itself lacks.
    return parse_object(archive.read(name), f"{path}, {name}", hint=_HINT, constants=True)


def _decoded(archive: Archive, path: str | Path, name: str, kind: Any) -> Any:
    return decoded(kind, _member(archive, path, name), f"{path}, {name}", what="is no part of an ETRecord", hint=_HINT)


def _several(handles: int | Sequence[int]) -> tuple[int, ...]:
    return (handles,) if isinstance(handles, int) else tuple(dict.fromkeys(handles))


def _nodes(program: Mapping[str, Any]) -> dict[str, Node]:
    """The nodes of a program by debug handle. What else is in it, and what is of another kind, is left out."""
    found: dict[str, Node] = {}
    for node in objects(program):
        told: Any = node.get("metadata")
        told = told if isinstance(told, dict) else {}
        handle, operator = told.get("debug_handle"), node.get("target")
        if not isinstance(handle, str) or not isinstance(operator, str):
            continue
        for dialect in _DIALECTS:
            operator = operator.removeprefix(dialect)
        before = found.get(handle)
        if before is not None:
            found[handle] = Node((*before.operators, operator), before.module, before.source)
            continue
        # "key,path,class" of each module, the innermost last.
        stack = str(told.get("nn_module_stack", "")).rpartition(";")[2].split(",")
        traced: Any = SimpleNamespace(meta={"stack_trace": str(told.get("stack_trace", ""))}, stack_trace="")
        found[handle] = Node((operator,), stack[1] if len(stack) > 1 else "", source_line(traced) or "")
    return found
