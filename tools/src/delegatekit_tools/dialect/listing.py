"""The operators of the edge dialect, compared with a backend's support table: the command `operators`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from delegatekit.plugins import LoadedBackend, entry_points, fault
from delegatekit_api import PluginError
from delegatekit_api.versions import PROJECT

from .closed_set import GROUPS, DialectOperator, absence, dialect_operators

#: Entry points of suites: functions that return the names of the operators of the edge dialect in their examples.
EXAMPLES_GROUP: Final = f"{PROJECT}.examples"


@dataclass(frozen=True)
class OperatorListing:
    """The closed set of operators that can reach a backend; with a backend, how its table relates to it."""

    operators: tuple[DialectOperator, ...]
    backend: str = ""
    #: The names of the backend's table that are in the set, and among them those that it asks not to decompose. None if
    #: the plugin does not list its rows.
    rows: frozenset[str] | None = None
    whole: frozenset[str] = frozenset()
    #: Names of the table that cannot occur in a program, with the reason.
    impossible: tuple[tuple[str, str], ...] = ()
    #: The operators in examples of a suite; None if no suite is installed.
    examples: frozenset[str] | None = None

    @property
    def without_example(self) -> tuple[str, ...]:
        """The operators of the set (with a backend: of its table) that no example contains."""
        if self.examples is None:
            return ()
        # Quantized programs are made by a backend's schemes, not drawn.
        chosen = (item for item in self.operators if item.group != "quantized")
        wanted = [item.name for item in chosen if item.group != "whole" or item.name in self.whole]
        if self.backend:
            wanted = [name for name in wanted if self.rows is not None and name in self.rows]
        return tuple(name for name in wanted if name not in self.examples)

    def text(self, *, schemas: bool = False) -> str:
        """The operators by group, optionally with their schemas, and remarks about the backend."""
        parts = []
        for group, title in GROUPS.items():
            found = [item for item in self.operators if item.group == group and self._is_shown(item)]
            if found:
                lines = [f"  {self._sign(item)}{item.schema if schemas else item.name}" for item in found]
                parts.append("\n".join([f"{title} ({len(found)})", *lines]))
        if self.backend and self.rows is None:
            parts.append(f"the rows of {self.backend} cannot be read: the plugin has no hook `documentation`")
        if self.impossible:
            lines = [f"  {name}: {reason}" for name, reason in self.impossible]
            parts.append("\n".join([f"names of {self.backend} that cannot occur ({len(lines)})", *lines]))
        if self.without_example:
            names = self.without_example
            parts.append("\n".join([f"without an example in the conformance suite ({len(names)})", *_indented(names)]))
        if self.examples is None:
            parts.append("delegatekit-conformance is not installed: the examples are unknown")
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        values: dict[str, Any] = {
            "operators": [{"name": item.name, "group": item.group, "schema": item.schema} for item in self.operators],
            "without_example": None if self.examples is None else list(self.without_example),
        }
        if self.backend:
            values["backend"] = self.backend
            values["rows"] = None if self.rows is None else sorted(self.rows)
            values["whole"] = sorted(self.whole)
            values["impossible"] = dict(self.impossible)
        return values

    def _is_shown(self, item: DialectOperator) -> bool:
        return not self.backend or item.group != "whole" or item.name in self.whole

    def _sign(self, item: DialectOperator) -> str:
        if not self.backend:
            return ""
        return "+ " if self.rows is not None and item.name in self.rows else "  "


def operators(backend: LoadedBackend | None = None) -> OperatorListing:
    """The dialect, with a backend's table if one is given. Raises PluginError for a plugin with invalid answers."""
    found = tuple(dialect_operators().values())
    examples = _examples()
    if backend is None:
        return OperatorListing(found, examples=examples)
    table = backend.documentation().operators
    if table is None:
        return OperatorListing(found, backend.name, examples=examples)
    reasons = {entry.operator: absence(entry.operator, whole=entry.whole) for entry in table.entries}
    return OperatorListing(
        found,
        backend.name,
        frozenset(name for name, reason in reasons.items() if not reason),
        frozenset(entry.operator for entry in table.entries if entry.whole and not reasons[entry.operator]),
        tuple((name, reason) for name, reason in reasons.items() if reason),
        examples,
    )


def _examples() -> frozenset[str] | None:
    """The operators in examples of the installed suites, from functions of the entry points. None without any."""
    found: set[str] = set()
    points = entry_points(EXAMPLES_GROUP)
    for point in points:
        try:
            names: Collection[str] = point.load()()
        except Exception as error:
            where = f"{point.name} of {point.value}"
            raise PluginError(f"cannot list its examples: {fault(error)}", where=where) from error
        found |= set(names)
    return frozenset(found) if points else None


def _indented(names: Collection[str]) -> list[str]:
    return [f"  {name}" for name in names]
