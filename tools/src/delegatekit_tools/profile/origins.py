"""Traces measurements back to modules and source lines, by the debug map or an ETRecord."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import cut_off, decoded

from ..etrecord.reading import Inside, Node, Record
from .measured import ITSELF, Origin

_WHERE: Final = "debug map"
_HINT: Final = "give the map that `lower --debug-map` wrote together with this file"
#: Modules of one operator that are named; the number of more is told.
_NAMED: Final = 4


@dataclass(frozen=True)
class _Instruction:
    instruction: int
    calls: str
    handles: tuple[int, ...]


@dataclass(frozen=True)
class _Inner:
    """A module that was lowered before: its handles are those of its own program."""

    nodes: Mapping[str, Node]
    operators: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Delegate:
    delegate: int
    backend: str
    operators: Mapping[str, tuple[int, ...]]
    lowered_module: _Inner | None = None


@dataclass(frozen=True)
class _Method:
    file: str
    nodes: Mapping[str, Node]
    instructions: tuple[_Instruction, ...]
    delegates: tuple[_Delegate, ...]


class Origins:
    """The origins of one method's instructions and operators; empty if nothing tells them."""

    def __init__(
        self, told: Mapping[str, Any] | Record | None, method: str, calls: Sequence[str], key: str | None = None
    ) -> None:
        """`told` is a debug map or an ETRecord; `calls` are the callees of the file's instructions, `key` is that of
        its content.

        Raises FormatError for what is of another file, and DelegateKitError for an ETRecord without this method.
        """
        self._nodes: Mapping[str, Node] = {}
        self._handles: Mapping[int, tuple[int, ...]] = {}
        #: The operators of delegates, by the position of the instruction that calls one.
        self._inside: dict[int, Inside] = {}
        if isinstance(told, Record):
            found = told.of(method, calls)
            self._nodes, self._handles, self._inside = found.nodes, found.handles, dict(found.inside)
        elif told is not None:
            self._map(_read(told, method), calls, key)

    def _map(self, found: _Method, calls: Sequence[str], key: str | None) -> None:
        named = [item.calls for item in found.instructions]
        what = ""
        if len(named) != len(calls):
            what = f"it has {len(named)} instructions, the file {len(calls)}"
        elif named != list(calls):
            place = next(index for index, pair in enumerate(zip(named, calls, strict=True)) if pair[0] != pair[1])
            what = f"instruction {place} calls {cut_off(named[place])} there, {calls[place]} in the file"
        elif key not in (None, found.file):
            what = "its instructions are the same, but what they compute with is not"
        if what:
            raise FormatError(f"is of another file: {what}", where=_WHERE, hint=_HINT)
        self._nodes = found.nodes
        self._handles = {position: item.handles for position, item in enumerate(found.instructions)}
        for position, name in enumerate(named):
            kind, _, index = name.partition(" ")
            if kind != "delegate":
                continue
            if int(index) >= len(found.delegates):
                what = f"knows {len(found.delegates)} delegates, and {name} is none of them"
                raise FormatError(what, where=_WHERE, hint=_HINT)
            delegate = found.delegates[int(index)]
            inner = delegate.lowered_module
            self._inside[position] = Inside((inner or delegate).operators, (inner or found).nodes)

    @staticmethod
    def calls_of(debug_map: Mapping[str, Any], method: str) -> tuple[str, ...]:
        """The callees of a method's instructions, according to the debug map. Raises FormatError for an invalid map."""
        return tuple(item.calls for item in _read(debug_map, method).instructions)

    def of_instruction(self, position: int) -> Origin:
        """The origin of an instruction."""
        return _origin(self._handles.get(position, ()), self._nodes)

    def parts_of_instruction(self, position: int) -> tuple[Origin, ...]:
        """The origins of the exported nodes that an instruction computes, one by one."""
        return tuple(_origin([handle], self._nodes) for handle in self._handles.get(position, ()))

    def of_operators(self, position: int, keys: Sequence[int | str | None]) -> list[Origin]:
        """The origins of the operators with these keys in the delegate that an instruction calls.

        A runtime may give its operators no keys that are known, but run as many as the map numbers, in the order of the
        blob: then these are the keys.
        """
        inside = self._inside.get(position, Inside({}, {}))
        names = [str(key) for key in keys]
        numbers = list(map(str, range(len(names))))
        if inside.operators.keys().isdisjoint(names) and inside.operators.keys() == set(numbers):
            names = numbers
        return [_origin(inside.operators.get(name, ()), inside.nodes) for name in names]


def _read(debug_map: Mapping[str, Any], method: str) -> _Method:
    """The map of one method. Raises FormatError."""
    if not isinstance(debug_map, Mapping):
        raise FormatError("is no debug map", where=_WHERE, hint=_HINT)
    if method not in debug_map:
        known = cut_off(", ".join(map(str, debug_map)) or "none")
        raise FormatError(f"has no method {method}, only {known}", where=_WHERE, hint=_HINT)
    return decoded(_Method, debug_map[method], f"{_WHERE}, method {method}", what="is no debug map", hint=_HINT)


def _origin(handles: Iterable[int], nodes: Mapping[str, Node]) -> Origin:
    found = [nodes[str(handle)] for handle in handles if str(handle) in nodes]
    return Origin(
        tuple(dict.fromkeys(name for node in found for name in node.operators)),
        tuple(dict.fromkeys(node.module for node in found if node.module)),
        tuple(dict.fromkeys(node.source for node in found if node.source)),
        _place([node.module for node in found]),
    )


def _place(modules: Collection[str]) -> str:
    """The place of these modules in the tree of all: `Origin.module`."""
    paths = [module.split(".") if module else [] for module in modules]
    if not paths:
        return ""
    first, last = min(paths), max(paths)
    different = (index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    common = next(different, min(len(first), len(last)))
    names = list(dict.fromkeys(path[common] if len(path) > common else ITSELF for path in paths))
    if names == [ITSELF]:
        return ".".join(first)
    told = ", ".join(names) if len(names) <= _NAMED else f"{names[0]} to {names[-1]} ({len(names)} modules)"
    return ".".join([*first[:common], told])
