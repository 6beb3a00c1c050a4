"""The docs say what the code does: generated pages are current, quoted files are verbatim, links and commands exist."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from imports import reachable, room_graph
from packages import Package, examples, packages, plugins, requirement_name

from delegatekit.plugins import get_backend

ROOT = Path(__file__).parents[1]
PACKAGES = [*packages(), *examples()]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(package.folder / "README.md" for package in PACKAGES),
]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    assert [str(path.relative_to(ROOT)) for path in generator().stale_pages()] == [], "run python docs/generate.py"


@pytest.mark.parametrize("name", [name for plugin in plugins() for name in plugin.backends])
def test_every_operator_that_a_backend_takes_has_a_row(name: str) -> None:
    table = get_backend(name).documentation().operators
    if table is None:  # another maker's compiler answers
        assert not get_backend(name).description.runs_any_maker
        return
    page = (ROOT / "docs" / f"operators-{name}.md").read_text()
    rows = re.findall(
        r"^\| `((?:aten|quant|quantized_decomposed|torchao|delegatekit_\w+)\.[^`]+)` \|", page, re.MULTILINE
    )
    assert sorted(rows) == sorted(entry.operator for entry in table.entries)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "api").glob("delegatekit*.md")), ids=lambda page: page.stem)
def test_the_reference_has_every_name_that_a_module_exports(page: Path) -> None:
    module = import_module(page.stem)
    wanted = {name for name in getattr(module, "__all__", ()) if not name.startswith("__")}
    assert wanted <= set(re.findall(r"^(?:### |\* `)([\w]+)", page.read_text(), re.MULTILINE))


def test_the_guide_quotes_the_example_verbatim() -> None:
    text = (ROOT / "docs" / "writing-a-backend.md").read_text()
    quotes = re.findall(r"^`(examples/[^`]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {Path(path).name for path, _ in quotes} >= {"pyproject.toml", "plugin.py", "support.py", "runtime.py"}
    for path, quote in quotes:
        assert quote in (ROOT / path).read_text(), f"{path} says it differently"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_and_commands_in_the_docs_exist(page: Path) -> None:
    from delegatekit.cli import application

    # A recipe's diff may add a command.
    text = re.sub(r"^```diff.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    makefiles = [ROOT / "Makefile", *ROOT.glob("plugins/*/targets.mk")]
    targets = {name for path in makefiles for name in re.findall(r"^([a-z-]+):", path.read_text(), re.MULTILINE)}
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    whole: Any = typer.main.get_command(application())
    commands = set(whole.commands)
    # Not "delegatekit.NAME" of Python and not a package's name in `pip install`.
    lines = [line for line in text.splitlines() if "pip install" not in line]
    used = re.findall(r"(?:^(?:\$ )?|`)delegatekit ([a-z]+(?:-[a-z]+)*)", "\n".join(lines), re.MULTILINE)
    added = re.findall(r"^\+def ([a-z]+)\(", text, re.MULTILINE)  # by the diff of a recipe
    assert set(used) <= commands | set(added)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_every_dependency_is_documented(package: Package) -> None:
    if package.is_plugin:
        text = (package.folder / "README.md").read_text().split("## Dependencies\n", 1)[1]
    else:
        text = (ROOT / "docs" / "dependencies.md").read_text().split(f"## {package.distribution}\n", 1)[1]
    section = text.split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)) == package.requirements


def test_development_dependencies_are_documented() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [
        requirement_name(line)
        for name in ("requirements-dev.txt", "requirements-models.txt", "requirements-vendors.txt")
        for line in (ROOT / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert [name for name in wanted if f"| `{name}` |" not in text] == []


def test_the_changelog_has_the_version_of_every_package() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    for package in PACKAGES:
        assert f"## {package.project['version']}" in text


def test_the_conformance_page_explains_every_verdict() -> None:
    from delegatekit_conformance import Verdict

    page = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    for verdict in Verdict:
        assert f"| {verdict.value} | {'yes' if verdict.is_fault else ''} | {verdict.meaning} |" in page, verdict


# -- docs/architecture.md: its names, its paths and its pictures ------------------------------------------------------

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
#: First parts of dotted names that are not ours.
FOREIGN = (
    "aten",
    "executorch",
    "executorch_prim",
    "math",
    "node",
    "operator",
    "quant",
    "quantized_decomposed",
    "torch",
    "MAJOR",
)
#: Single names that are not ours either.
FOREIGN_NAMES = {"SystemExit", "NotImplemented", "str"}
#: Sections that name operators: single words there are not looked up.
OPERATORS = {"Element types", "What is removed", "Sizes that change", "Canonical forms", "Keeping operators whole"}


def code_spans() -> Iterator[tuple[str, str]]:
    """Section and text of each piece of code in the page's sentences and tables."""
    section = ""
    for line in re.sub(r"^```.*?^```", "", ARCHITECTURE, flags=re.MULTILINE | re.DOTALL).splitlines():
        section = line.lstrip("# ") if line.startswith("#") else section
        for text in re.findall(r"`([^`]+)`", line):
            yield section, text


@cache
def names_of(path: Path) -> frozenset[str]:
    """The names that a file defines or imports at its top, and "Class.member" of its classes' members."""
    found = set()
    for statement in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(statement, ast.ClassDef):
            found |= {f"{statement.name}.{name}" for item in statement.body for name in _defined(item)}
            # Fields that are set when an object is made.
            found |= {
                f"{statement.name}.{item.attr}"
                for item in ast.walk(statement)
                if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)
            }
        found.update(_defined(statement))
    return frozenset(found)


def _defined(statement: ast.AST) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.ImportFrom | ast.Import):
        yield from (alias.asname or alias.name for alias in statement.names)


@cache
def our_modules() -> dict[str, frozenset[str]]:
    """Full name of each of our modules -> the names that it has, those of its classes included."""
    return {module: names_of(path) for package in PACKAGES for module, path in package.modules()}


@cache
def our_names() -> frozenset[str]:
    return frozenset().union(*our_modules().values())


def is_ours(name: str) -> bool:
    """True if a dotted name is a module of ours, a name in one, or a member of one of our classes."""
    modules = our_modules()
    if name in our_names():
        return True
    for start in ("", "delegatekit.", "delegatekit.plugins."):
        full = start + name
        places = [full[: match.start()] for match in re.finditer(r"\.", full)]
        if full in modules or any(place in modules and full[len(place) + 1 :] in modules[place] for place in places):
            return True
    return False


def test_the_architecture_page_names_paths_that_exist() -> None:
    homes = [ROOT, *(package.folder for package in PACKAGES)]
    homes += [package.source / package.module for package in PACKAGES]
    paths = {
        text
        for _, text in code_spans()
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*(/|\.(py|md|txt|toml))|(plugins|tests)/\w+", text) and "NAME" not in text
    }
    assert len(paths) > 100
    assert {text for text in paths if not any((home / text).exists() for home in homes)} == set()


def test_the_architecture_page_names_what_exists() -> None:
    assert {section for section, _ in code_spans()} >= OPERATORS
    looked_up = {}
    for section, text in code_spans():
        name = re.sub(r"\(.*\)$|\[.*\]$", "", text)
        is_call = name != text
        # Entry point groups and named data look like names of modules.
        if name in FOREIGN_NAMES or section in OPERATORS or re.fullmatch(r"delegatekit\.\w+", name):
            continue
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name) and not re.search(r"\.(py|md|txt|toml)$", name):
            looked_up[name] = name.partition(".")[0] in FOREIGN or is_ours(name)
        elif re.fullmatch(r"[A-Z]+[a-z]\w*", name) or (is_call and re.fullmatch(r"[a-z]\w*", name)):
            looked_up[name] = any(ours == name or ours.endswith(f".{name}") for ours in our_names())
    assert len(looked_up) > 100
    assert [name for name, found in looked_up.items() if not found] == []


def picture(title: str) -> set[tuple[str, str]]:
    """The arrows of the picture with this title; chains are several arrows."""
    (text,) = re.findall(rf"^```mermaid\n%% {title}\n(.*?)^```", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    found = set()
    for line in text.splitlines():
        nodes = [re.sub(r"\[.*\]", "", node).strip() for node in re.split(r"-->|-\..*\.->", line)]
        found.update(itertools.pairwise(nodes))
    return found


def reduced(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows that do not follow from others."""
    return {
        (start, end)
        for start, ends in graph.items()
        for end in ends
        if end not in reachable({name: frozenset(item) for name, item in graph.items()}, ends - {end})
    }


def rooms(package: Package) -> dict[str, set[str]]:
    """Room -> the rooms that it imports; a name from the package's face counts for the room that has it."""
    graph = room_graph(package)
    return {
        name: {end for target in ends for end in (graph[""] if target == "" else {target})} - {name}
        for name, ends in graph.items()
        if name not in ("", "__main__")
    }


@pytest.mark.parametrize("folder", ["core", "tools", "conformance"])
def test_the_pictures_of_rooms_show_who_imports_whom(folder: str) -> None:
    (package,) = [package for package in PACKAGES if str(package) == folder]
    assert picture(f"rooms of {folder}") == reduced(rooms(package))


def test_the_picture_of_a_plugin_has_arrows_that_exist() -> None:
    found = {
        (start, end)
        for package in PACKAGES
        if package.is_plugin
        for start, ends in rooms(package).items()
        for end in ends
    }
    assert picture("rooms of plugins") <= found


def test_the_picture_of_packages_shows_who_needs_whom() -> None:
    folders = {package.distribution: str(package).partition("/")[0] for package in packages()}
    graph: dict[str, set[str]] = {name: set() for name in folders.values()}
    for package in packages():
        folder = folders[package.distribution]
        graph[folder] |= {folders[name] for name in package.requirements if name in folders} - {folder}
    graph["core"].discard("tools")  # an extra of the core brings them for convenience; no module of it imports them
    assert picture("packages") == reduced(graph)
