"""The rooms of the core and their imports: one way, and without cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import delegatekit

ROOT = Path(delegatekit.__file__).parent
PACKAGE = "delegatekit"

#: The rooms of the core, the lowest first: each imports only rooms listed before it.
ROOMS = (
    "version",
    "errors",
    "text",
    "files",
    "plugins",
    # files, and what runs them
    "pte",
    "reading",
    "engine",
    # the stages from a program to a file
    "edge",
    "passes",
    "fallback",
    "partition",
    "compiling",
    "lowering",
    "emit",
    # what users get
    "pipeline",
    "quantization",
    "cli",
)


def modules() -> dict[str, Path]:
    """The modules of the core by dotted name; a package is its __init__."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the core that a file imports anywhere: inside functions and for type checking, too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                # A submodule, or a name of the module itself.
                inner = f"{target}.{alias.name}"
                if inner in known:
                    yield inner
                elif target in known:
                    yield target


def arrows() -> dict[str, set[str]]:
    """Module -> the modules that it imports."""
    known = modules()
    return {name: set(imported(name, path, known)) - {name} for name, path in known.items()}


def room(module: str) -> str:
    """The room of a module; the package itself is none, nor is the door to its command line."""
    return module.removeprefix(PACKAGE).removeprefix(".").removeprefix("__main__").partition(".")[0]


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Some cycle of a graph, or an empty list."""
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(name: str) -> list[str]:
        state[name] = 1
        path.append(name)
        for other in sorted(graph.get(name, ())):
            if state.get(other) == 1:
                return [*path[path.index(other) :], other]
            if other not in state and (found := visit(other)):
                return found
        state[name] = 2
        path.pop()
        return []

    for name in sorted(graph):
        if name not in state and (found := visit(name)):
            return found
    return []


def test_every_room_has_a_place_in_the_order() -> None:
    assert {room(name) for name in modules()} - {""} == set(ROOMS)


def test_rooms_import_only_rooms_before_them() -> None:
    place = {name: index for index, name in enumerate(ROOMS)}
    back = [
        f"{name} imports {other}"
        for name, others in arrows().items()
        for other in others
        if room(name) and room(other) and place[room(other)] > place[room(name)]
    ]
    assert not back


def test_no_module_imports_itself_by_way_of_others() -> None:
    # The package's __init__ imports its names on first use; a package's __init__ is its face: a module
    # of the package imports its neighbors, not the face.
    graph = {name: others - {PACKAGE} for name, others in arrows().items() if name != PACKAGE}
    assert not circle(graph)


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not circle({"a": {"b", "c"}, "b": {"c"}})


def test_imports_inside_functions_and_for_type_checking_count(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from .other import Thing\n"
        "def f():\n    from ..far import inner\n    import delegatekit.near\n"
    )
    names = ("near.here.module", "near.here.other", "near.far", "near.far.inner", "near")
    known = {f"delegatekit.{name}": path for name in names}
    found = set(imported("delegatekit.near.here.module", path, known))
    assert found == {"delegatekit.near.here.other", "delegatekit.near.far.inner", "delegatekit.near"}


def test_the_core_stays_thin() -> None:
    assert len(ROOMS) <= 18
    files = [path for path in ROOT.rglob("*.py") if "quantization" not in path.parts]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= 25_100
    rooms: dict[str, set[str]] = {name: set() for name in ROOMS}
    for name, others in arrows().items():
        rooms.setdefault(room(name), set()).update({room(other) for other in others} - {room(name), ""})
    floors: dict[str, int] = {}
    for name in ROOMS:  # the lowest first
        floors[name] = 1 + max((floors[other] for other in rooms[name]), default=0)
    assert max(floors.values()) <= 10, floors
