"""The docs say what the code does: generated pages are current, quoted files are verbatim, links and commands exist."""

from __future__ import annotations

import importlib.util
import re
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import pytest
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
    assert table is not None
    page = (ROOT / "docs" / f"operators-{name}.md").read_text()
    rows = re.findall(r"^\| `((?:aten|quantized_decomposed|torchao)\.[^`]+)` \|", page, re.MULTILINE)
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
    from delegatekit.cli import app

    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    commands = {str(info.name or info.callback.__name__) for info in app.registered_commands if info.callback}
    commands.update(entry.name for entry in metadata.entry_points(group="delegatekit.commands"))
    # Not "delegatekit.NAME" of Python and not a package's name in `pip install`.
    lines = [line for line in text.splitlines() if "pip install" not in line]
    used = re.findall(r"(?:^(?:\$ )?|`)delegatekit ([a-z]+)", "\n".join(lines), re.MULTILINE)
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
