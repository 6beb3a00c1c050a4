"""The import graph, read from the sources, for the tests of the architecture's borders."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packages import Package

#: Functions of `delegatekit_toolkit.hooks` whose last argument is a reference to what a hook loads.
_LAZY = frozenset({"lazy_hook", "lazy_documentation"})

#: Module or room -> its imports of the same package, except itself.
Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Import:
    """One imported name: "delegatekit.pte.reader.read" for `from .pte.reader import read`."""

    name: str
    line: int
    #: True if only type checkers see it: it is under `if TYPE_CHECKING`.
    for_types: bool

    @property
    def top(self) -> str:
        """The package at the top: "delegatekit"."""
        return self.name.partition(".")[0]


def imports(module: str, path: Path) -> Iterator[Import]:
    """Everything that a file imports anywhere, inside functions and for type checkers, too; and what its hooks load."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    parents = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _LAZY:
            names = [ast.literal_eval(node.args[-1]).replace(":", ".")]
        for name in names:
            yield Import(name, node.lineno, id(node) in for_types)  # type: ignore[attr-defined]


@cache
def module_graph(package: Package) -> Graph:
    """The imports between the modules of a package."""
    files = dict(package.modules())
    found: dict[str, frozenset[str]] = {}
    for module, path in files.items():
        inside = {owner(item.name, files) for item in imports(module, path)}
        found[module] = frozenset(name for name in inside if name is not None and name != module)
    return found


@cache
def room_graph(package: Package) -> Graph:
    """The imports between the rooms of a package; a room is a module or a subpackage directly under the package."""
    found: dict[str, set[str]] = {}
    for module, targets in module_graph(package).items():
        own = room(module)
        found.setdefault(own, set()).update(room(target) for target in targets if room(target) != own)
    return {name: frozenset(targets) for name, targets in found.items()}


def room(module: str) -> str:
    """ "edge" for delegatekit.edge.rules.views; "" for the package's own __init__."""
    return ".".join(module.split(".")[1:2])


def reachable(graph: Graph, starts: Iterable[str]) -> frozenset[str]:
    """The modules imported from `starts`, directly or not, including `starts`."""
    found: set[str] = set()
    todo = list(starts)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(graph.get(name, ()))
    return frozenset(found)


def circles(graph: Graph) -> list[str]:
    """The cycles, one of each strongly connected component, as "a -> b -> a"."""
    found: list[str] = []
    tangled: set[str] = set()
    for start in sorted(graph):
        way = None if start in tangled else _way_back(graph, start)
        if way is not None:
            found.append(" -> ".join(way))
            tangled.update(way)
    return found


def _way_back(graph: Graph, start: str) -> list[str] | None:
    """The shortest path from a node to itself."""
    ways = [[start, target] for target in sorted(graph[start])]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        if way[-1] == start:
            return way
        if way[-1] not in seen:
            seen.add(way[-1])
            ways.extend([*way, target] for target in sorted(graph.get(way[-1], ())))
    return None


def owner(name: str, modules: Collection[str]) -> str | None:
    """The module that an imported name is in, or is: "delegatekit.pte.reader" for "delegatekit.pte.reader.read"."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None
