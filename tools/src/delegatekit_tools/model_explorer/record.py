"""The insides of delegates from an ETRecord beside a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from delegatekit.files import Archive, open_archive
from delegatekit.reading import FileMethod
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import decoded, parse_object

_HINT: Final = "`lower --etrecord` writes one"


@dataclass(frozen=True)
class RecordedNode:
    """A node of an edge program, as torch.export writes it, with the other fields left out."""

    name: str
    target: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    metadata: Mapping[str, str]


class Record:
    """The nodes of each method's edge program, by the instruction that computes them."""

    def __init__(self, path: Path) -> None:
        """Raises FormatError for anything but an ETRecord."""
        self._where = str(path)
        with open_archive(path, "ETRecord", hint=_HINT) as archive:
            handles = self._parsed(archive, "debug_handle_map")
            delegates = self._parsed(archive, "delegate_map")
            self._handles = self._decoded(dict[str, dict[str, list[int] | int]], handles, "debug_handle_map")
            self._delegates = self._decoded(dict[str, dict[str, Any]], delegates, "delegate_map")
            self._nodes = {name: list(self._of_method(archive, name)) for name in self._handles}

    def check(self, method: FileMethod) -> None:
        """Raise FormatError if the record is of another program than the one that has this method."""
        delegates = {str(index) for index, item in enumerate(method.instructions) if item.delegate is not None}
        handles, known = self._handles.get(method.name), self._delegates.get(method.name)
        if handles is None or known is None or known.keys() != delegates or len(handles) != len(method.instructions):
            hint = "lower the model with --etrecord again, or move the record away"
            raise FormatError(f"is of another program: method {method.name} differs", where=self._where, hint=hint)

    def inside(self, method: str, instruction: int) -> Sequence[RecordedNode]:
        """The nodes that an instruction computes, according to the record; none if it lacks the instruction."""
        handles = self._handles.get(method, {}).get(str(instruction), [])
        wanted = {str(handle) for handle in (handles if isinstance(handles, list) else [handles])}
        return [node for node in self._nodes.get(method, ()) if node.metadata.get("debug_handle") in wanted]

    def _of_method(self, archive: Archive, name: str) -> Iterator[RecordedNode]:
        for member in (f"edge_dialect_exported_program/{name}", f"methods/{name}"):
            if member in archive.names:
                content: Any = self._parsed(archive, member)
                for step in ("graph_module", "graph", "nodes"):
                    content = self._decoded(dict[str, Any], content, member).get(step)
                for node in self._decoded(list[dict[str, Any]], content, f"{member}, nodes"):
                    known = {item.name: node[item.name] for item in fields(RecordedNode) if item.name in node}
                    yield self._decoded(RecordedNode, known, f"{member}, node {node.get('name')}")
                return

    def _parsed(self, archive: Archive, member: str) -> dict[str, Any]:
        # PyTorch's own programs have infinities as Python writes them.
        return parse_object(archive.read(member), f"{self._where}, {member}", hint=_HINT, constants=True)

    def _decoded(self, kind: Any, value: Any, member: str) -> Any:
        return decoded(kind, value, f"{self._where}, {member}", what="is no ETRecord", hint=_HINT)
