"""Traces what was measured back to modules and source lines, by the debug map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from delegatekit_api import DelegateKitError

from .measured import Origin

_HINT: Final = "give the map that `lower --debug-map` wrote together with this file"


class Origins:
    """A debug map of one method; without a map nothing is known."""

    def __init__(self, debug_map: Mapping[str, Any] | None, method: str, calls: Sequence[str]) -> None:
        """`calls` are what the instructions of the file call. Raises DelegateKitError for a map of something else."""
        self._found: Mapping[str, Any] | None = None
        if debug_map is None:
            return
        try:
            if method not in debug_map:
                known = ", ".join(map(str, debug_map)) or "none"
                raise DelegateKitError(f"has no method {method}, only {known}", where="debug map", hint=_HINT)
            self._found = debug_map[method]
            named = list(self.calls_of(debug_map, method))
        except (TypeError, KeyError) as error:
            raise DelegateKitError(f"is no debug map: {error!r}", where="debug map", hint=_HINT) from None
        if named != list(calls):
            what = f"is of another file: it has {len(named)} instructions, the file {len(calls)}"
            if len(named) == len(calls):
                place = next(index for index, pair in enumerate(zip(named, calls, strict=True)) if pair[0] != pair[1])
                what = f"is of another file: instruction {place} calls {named[place]} there, {calls[place]} in the file"
            raise DelegateKitError(what, where="debug map", hint=_HINT)

    @staticmethod
    def calls_of(debug_map: Mapping[str, Any], method: str) -> tuple[str, ...]:
        """What the instructions of a method call, as the debug map has it. Raises DelegateKitError for what is none."""
        try:
            return tuple(str(item["calls"]) for item in debug_map[method]["instructions"])
        except (TypeError, KeyError) as error:
            raise DelegateKitError(f"is no debug map: {error!r}", where="debug map", hint=_HINT) from None

    def of_instruction(self, position: int) -> Origin:
        """Where an instruction comes from."""
        if self._found is None:
            return Origin()
        return self._origin(self._found["instructions"][position]["handles"], self._found["nodes"])

    def of_operator(self, calls: str, key: int | str | None) -> Origin:
        """Where an operator of the delegate comes from that an instruction calls ("delegate 0")."""
        if self._found is None or key is None:
            return Origin()
        delegate = self._found["delegates"][int(calls.rpartition(" ")[2])]
        inner = delegate.get("lowered_module")
        handles = (inner or delegate)["operators"].get(str(key), ())
        return self._origin(handles, inner["nodes"] if inner else self._found["nodes"])

    def _origin(self, handles: Iterable[int], nodes: Mapping[str, Any]) -> Origin:
        found = [nodes[str(handle)] for handle in handles if str(handle) in nodes]
        return Origin(
            tuple(dict.fromkeys(name for node in found for name in node["operators"])),
            tuple(dict.fromkeys(node["module"] for node in found if node["module"])),
            tuple(dict.fromkeys(node["source"] for node in found if node["source"])),
        )
