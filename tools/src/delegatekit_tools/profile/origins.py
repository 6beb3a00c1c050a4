"""Traces measurements back to modules and source lines, by the debug map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import cut_off, decoded

from .measured import Origin

_WHERE: Final = "debug map"
_HINT: Final = "give the map that `lower --debug-map` wrote together with this file"


@dataclass(frozen=True)
class _Node:
    operators: tuple[str, ...]
    module: str
    source: str


@dataclass(frozen=True)
class _Instruction:
    instruction: int
    calls: str
    handles: tuple[int, ...]


@dataclass(frozen=True)
class _Inner:
    """A module that was lowered before: its handles are those of its own program."""

    nodes: Mapping[str, _Node]
    operators: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Delegate:
    delegate: int
    backend: str
    operators: Mapping[str, tuple[int, ...]]
    lowered_module: _Inner | None = None


@dataclass(frozen=True)
class _Method:
    nodes: Mapping[str, _Node]
    instructions: tuple[_Instruction, ...]
    delegates: tuple[_Delegate, ...]


class Origins:
    """A debug map of one method; empty without a map."""

    def __init__(self, debug_map: Mapping[str, Any] | None, method: str, calls: Sequence[str]) -> None:
        """`calls` are the callees of the file's instructions. Raises FormatError for a map of another file."""
        self._found: _Method | None = None
        if debug_map is None:
            return
        self._found = _read(debug_map, method)
        named = [item.calls for item in self._found.instructions]
        if named != list(calls):
            what = f"is of another file: it has {len(named)} instructions, the file {len(calls)}"
            if len(named) == len(calls):
                place = next(index for index, pair in enumerate(zip(named, calls, strict=True)) if pair[0] != pair[1])
                there = cut_off(named[place])
                what = f"is of another file: instruction {place} calls {there} there, {calls[place]} in the file"
            raise FormatError(what, where=_WHERE, hint=_HINT)

    @staticmethod
    def calls_of(debug_map: Mapping[str, Any], method: str) -> tuple[str, ...]:
        """The callees of a method's instructions, according to the debug map. Raises FormatError for an invalid map."""
        return tuple(item.calls for item in _read(debug_map, method).instructions)

    def of_instruction(self, position: int) -> Origin:
        """The origin of an instruction."""
        if self._found is None:
            return Origin()
        return _origin(self._found.instructions[position].handles, self._found.nodes)

    def parts_of_instruction(self, position: int) -> tuple[Origin, ...]:
        """The origins of the exported nodes that an instruction computes, one by one."""
        if self._found is None:
            return ()
        return tuple(_origin([handle], self._found.nodes) for handle in self._found.instructions[position].handles)

    def of_operator(self, calls: str, key: int | str | None) -> Origin:
        """The origin of the operator of a delegate that an instruction calls ("delegate 0").

        Raises FormatError if the map lacks the delegate.
        """
        if self._found is None or key is None:
            return Origin()
        index = int(calls.rpartition(" ")[2])
        if not 0 <= index < len(self._found.delegates):
            what = f"knows {len(self._found.delegates)} delegates, and {calls} is none of them"
            raise FormatError(what, where=_WHERE, hint=_HINT)
        delegate = self._found.delegates[index]
        inner = delegate.lowered_module
        nodes = inner.nodes if inner is not None else self._found.nodes
        return _origin((inner or delegate).operators.get(str(key), ()), nodes)


def _read(debug_map: Mapping[str, Any], method: str) -> _Method:
    """The map of one method. Raises FormatError."""
    if not isinstance(debug_map, Mapping):
        raise FormatError("is no debug map", where=_WHERE, hint=_HINT)
    if method not in debug_map:
        known = cut_off(", ".join(map(str, debug_map)) or "none")
        raise FormatError(f"has no method {method}, only {known}", where=_WHERE, hint=_HINT)
    return decoded(_Method, debug_map[method], f"{_WHERE}, method {method}", what="is no debug map", hint=_HINT)


def _origin(handles: Iterable[int], nodes: Mapping[str, _Node]) -> Origin:
    found = [nodes[str(handle)] for handle in handles if str(handle) in nodes]
    return Origin(
        tuple(dict.fromkeys(name for node in found for name in node.operators)),
        tuple(dict.fromkeys(node.module for node in found if node.module)),
        tuple(dict.fromkeys(node.source for node in found if node.source)),
    )
