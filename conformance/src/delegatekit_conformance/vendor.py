"""Files that a vendor keeps beside a plugin's module, inside its wheel, for every user's runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, TypeVar

from delegatekit.plugins.declared import BACKEND_GROUP, entry_points

from .errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

_Entry = TypeVar("_Entry")


def packages_of(backend: str) -> frozenset[str]:
    """The names of the packages, or single modules, of a backend's plugin; nothing is imported."""
    return frozenset(item.module.partition(".")[0] for item in entry_points(BACKEND_GROUP) if item.name == backend)


def file_of(backend: str, name: str) -> tuple[str, str] | None:
    """The text of the file of this name, and where it is; None if there is none. The plugin's package is imported.

    Raises InputError if it is no UTF-8.
    """
    for entry_point in (item for item in entry_points(BACKEND_GROUP) if item.name == backend):
        package = entry_point.module.rpartition(".")[0]
        if not package:
            continue  # a plugin that is one module has no folder of its own
        file = resources.files(package) / name
        if file.is_file():
            try:
                return file.read_text("utf-8"), f"{package}/{name}"
            except UnicodeDecodeError as error:
                raise InputError(f"cannot be read: {error}", where=f"{package}/{name}") from error
    return None


def values_of(text: str, where: str) -> Mapping[str, Any]:
    """The values in the text of a TOML file. Raises InputError, with `where`, for anything else.

    >>> values_of("strict = true", "conformance.toml")
    {'strict': True}
    """
    try:
        values: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not TOML: {error}", where=where) from error
    return values


def entries_of(text: str, where: str, table: str, made: Callable[..., _Entry], what: str) -> tuple[_Entry, ...]:
    """One object for each `[[table]]` of a TOML file's text; top-level keys are defaults of each.

    Raises InputError, with `where`, for text that is not TOML, and, with `what`, for entries that `made` refuses.

    >>> entries_of("[[way]]\\nname = 'plain'", "stock.toml", "way", lambda name: name.upper(), "ways")
    ('PLAIN',)
    """
    values = values_of(text, where)
    common = {key: value for key, value in values.items() if key != table}
    try:
        return tuple(made(**{**common, **entry}) for entry in values[table])
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        raise InputError(f"has no valid {what}: {error}", where=where) from error
