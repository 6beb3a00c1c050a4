"""The table of what plugins should stop using, and the warnings that name what to write instead.

A row stays for the releases in which the old way only warns. A name that moved stays importable through `moved`; a
check that becomes stricter calls `outlived` where it would refuse. docs/versions.md has the rules and this table.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ._errors import PluginError
from ._version import API_VERSION, ApiVersion


@dataclass(frozen=True)
class Deprecation:
    """Something that plugins may still use, and should not."""

    #: The full name, "package.module" or "package.module.name"; of a check, what it still accepts, in words.
    name: str
    #: The API version, and the day, since which its use warns.
    since: ApiVersion
    date: str
    #: The first API version without it.
    goes: ApiVersion
    #: What to write in its place: of a name that moved, its new full name.
    instead: str

    @property
    def is_check(self) -> bool:
        """True of something that a check still accepts; False of a name."""
        return " " in self.name

    def __str__(self) -> str:
        return f"{self.name} goes in plugin API {self.goes}: use {self.instead}"


_MOVED_2_3: Final = (ApiVersion(2, 3), "2026-11-27", ApiVersion(3, 0))

#: The name of a check in the table: the core tells it of a plugin whose `dependencies` the environment does not meet.
OTHER_RELEASES: Final = "a plugin beside releases of DelegateKit's packages that it does not declare"

#: Everything that is deprecated, of this package and of the toolkit.
DEPRECATIONS: Final = (
    Deprecation(OTHER_RELEASES, ApiVersion(2, 4), "2026-11-29", ApiVersion(3, 0), "releases that fit: pip install -U"),
    Deprecation("delegatekit_api.quantization", *_MOVED_2_3, "delegatekit_api.schemes"),
    Deprecation("delegatekit_toolkit.documentation", *_MOVED_2_3, "delegatekit_toolkit.operator_tables"),
    Deprecation(
        "delegatekit_toolkit.narrowing.whole_numbers_fit", *_MOVED_2_3, "delegatekit_toolkit.narrowing.numbers_fit"
    ),
    Deprecation("delegatekit_toolkit.signature.SizeBounds", *_MOVED_2_3, "delegatekit_toolkit.symbols.SizeBounds"),
    Deprecation("delegatekit_toolkit.sizes.is_bounded", *_MOVED_2_3, "delegatekit_toolkit.symbols.is_bounded"),
    Deprecation("delegatekit_toolkit.sizes.shape_of", *_MOVED_2_3, "delegatekit_toolkit.symbols.shape_of"),
    Deprecation("delegatekit_toolkit.sizes.size_of", *_MOVED_2_3, "delegatekit_toolkit.symbols.size_of"),
)


def moved(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that names have left: it finds them by the table, and warns.

    A module that moved as a whole keeps a file with this alone:

        if not TYPE_CHECKING:
            __getattr__ = moved(__name__)
    """
    rows = {row.name: row for row in DEPRECATIONS}

    def find(name: str) -> Any:
        whole, row = rows.get(module), rows.get(f"{module}.{name}")
        if whole is not None and not name.startswith("__"):
            home, found, row = whole.instead, name, whole
        elif row is not None:
            home, _, found = row.instead.rpartition(".")
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), found)
        warnings.warn(str(row), DeprecationWarning, stacklevel=2)
        return value

    return find


def outlived(name: str, where: str, category: type[Warning] = DeprecationWarning) -> None:
    """What a check does that has become stricter: it warns until the row's API version, and refuses from there on.

    `where` names the plugin. Raises PluginError, and KeyError for a name that is not in the table.
    """
    row = {row.name: row for row in DEPRECATIONS}[name]
    if row.goes <= API_VERSION:
        raise PluginError(f"{row.name} is no longer accepted", where=where, hint=f"use {row.instead}")
    warnings.warn(f"{where}: {row}", category, stacklevel=2)
