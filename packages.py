"""Finds the packages of this repository by their folders, so that no list of them is kept anywhere.

A package is a folder with a pyproject.toml, at the top, in integrations/ or in plugins/; the examples are backends
outside of it. The Makefile finds them by the same rule.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parent
#: Where packages are.
FOLDERS: Final = ("*", "integrations/*", "plugins/*")


@dataclass(frozen=True)
class Package:
    """One distribution of this repository."""

    folder: Path

    def __str__(self) -> str:
        """The folder as seen from the root: "plugins/NAME"."""
        return self.folder.relative_to(ROOT).as_posix()

    @cached_property
    def project(self) -> dict[str, Any]:
        """The table `project` of its pyproject.toml."""
        table: dict[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))["project"]
        return table

    @property
    def distribution(self) -> str:
        """The name that is installed: "delegatekit-NAME"."""
        name: str = self.project["name"]
        return name

    @property
    def source(self) -> Path:
        """The folder that is put on the path."""
        return self.folder / "src"

    @property
    def module(self) -> str:
        """The one module that is imported: "delegatekit_NAME"."""
        (path,) = self.source.glob("*/__init__.py")
        return path.parent.name

    @property
    def is_plugin(self) -> bool:
        """True if it brings backends, and is no part of DelegateKit itself."""
        return bool(self.backends)

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that it brings."""
        return tuple(self.project.get("entry-points", {}).get("delegatekit.backends", {}))

    @property
    def requirements(self) -> frozenset[str]:
        """Names of the distributions that it needs, those of its extras included."""
        extras = self.project.get("optional-dependencies", {})
        wanted = [*self.project.get("dependencies", ()), *(item for extra in extras.values() for item in extra)]
        return frozenset(requirement_name(requirement) for requirement in wanted)

    @property
    def needs(self) -> frozenset[str]:
        """Names of the distributions that come with it, those of its extras left out."""
        return frozenset(requirement_name(requirement) for requirement in self.project.get("dependencies", ()))

    def modules(self) -> Iterator[tuple[str, Path]]:
        """Its modules by their full names, and their files."""
        for path in sorted(self.source.rglob("*.py")):
            parts = path.relative_to(self.source).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def packages() -> list[Package]:
    """The packages at the top of the repository, in integrations/ and in plugins/, in the order of their folders."""
    return [Package(path.parent) for pattern in FOLDERS for path in _projects(pattern)]


def plugins() -> list[Package]:
    """Those in plugins/."""
    return [Package(path.parent) for path in _projects("plugins/*")]


def examples() -> list[Package]:
    """The examples, which are plugins, too, but are not installed with the others."""
    return [Package(path.parent) for path in _projects("examples/*")]


def requirement_name(requirement: str) -> str:
    """The distribution that a requirement such as "torch>=2.9" names."""
    return re.split(r"[<>=~!\[; ]", requirement)[0]


def _projects(pattern: str) -> list[Path]:
    return sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
