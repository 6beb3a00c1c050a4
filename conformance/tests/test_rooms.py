"""The rooms of the suite import in one direction, and their modules in no circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import delegatekit_conformance

ROOT = Path(delegatekit_conformance.__file__).parent
#: Modules and folders in the order of the data. Each may import only what stands before it.
ORDER = (
    "errors",
    "declaration",
    "described",
    "outcome",
    "context",
    "settings",
    "vendor",
    # What is tried, and what is right.
    "recipe",
    "corpus",
    "joined",
    "diversity",
    "drawing",
    "strategies",
    "models",
    "stock",
    "insides",
    "trial",
    "cases",
    # How it is run.
    "installed",
    "run",
    "runner",
    "expectations",
    "looseness",
    "drafting",
    "session",
    # What people see.
    "report",
    "records",
    "progress",
    "cli",
    "mutants",
    "suite",
    "pytest_plugin",
    "__init__",
    # For backends' own tests.
    "testkit",
    "plugin_tests",
)


def modules() -> Mapping[str, Path]:
    """The files of the package by the dotted name inside it; a folder has the name of its `__init__`."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The modules of the package that a module imports, inside functions and for type checks, too."""
    path = MODULES[name]
    package = path.parent.relative_to(ROOT.parent).parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            targets = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target.partition(".")[0] == ROOT.name:
                yield resolved(target.partition(".")[2])


def resolved(target: str) -> str:
    """The module that a dotted name stands for or lies in."""
    while target and target not in MODULES:
        target = target.rpartition(".")[0]
    return target or "__init__"


GRAPH = {name: set(imports(name)) - {name} for name in MODULES}


def test_the_order_names_every_room() -> None:
    assert {name.partition(".")[0] for name in MODULES} == set(ORDER)
    assert len(set(ORDER)) == len(ORDER)


def test_no_arrow_goes_back() -> None:
    back = [
        f"{name} imports {target}"
        for name, targets in GRAPH.items()
        for target in targets
        if ORDER.index(target.partition(".")[0]) > ORDER.index(name.partition(".")[0])
    ]
    assert not back


def test_no_module_imports_itself_by_a_detour() -> None:
    assert len(list(TopologicalSorter(GRAPH).static_order())) == len(MODULES)


def test_imports_are_seen_wherever_they_stand() -> None:
    assert {"runner.cluster", "cases", "context"} <= GRAPH["session"], "inside a function, of a folder, of a module"
    assert "session" in GRAPH["suite"], "for type checks"
    assert "outcome" in GRAPH["cases.contract.rules"] or "cases.base" in GRAPH["cases.contract.rules"], "from above"
