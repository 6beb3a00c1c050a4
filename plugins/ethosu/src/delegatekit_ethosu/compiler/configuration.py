"""System configurations and memory modes: clocks and memories from Vela's configuration file."""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from delegatekit_api import OptionError

from .vela import packaged_configuration

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Configuration:
    """A configuration file of Vela with its system configurations and memory modes."""

    path: str
    #: Section -> key in lower case -> value, including inherited ones.
    sections: Mapping[str, Mapping[str, str]]
    #: Name -> clock of the accelerator in Hz; 0 if the file gives none.
    clocks: dict[str, float]
    #: Name -> limit of the arena, or of the cache before it, in bytes; None if the file gives none.
    arena_limits: dict[str, int | None]

    def clock(self, system_config: str) -> float:
        """The clock of a system configuration in Hz. Raises OptionError, with the existing names."""
        return _find(self.path, "system configuration", system_config, self.clocks)

    def arena_limit(self, memory_mode: str) -> int | None:
        """The limit of a memory mode in bytes. Raises OptionError, with the existing names."""
        return _find(self.path, "memory mode", memory_mode, self.arena_limits)


def _find(path: str, kind: str, name: str, known: dict[str, _Found]) -> _Found:
    if name not in known:
        raise OptionError(
            f"there is no {kind} {name!r}", where=f"Vela configuration {path}", hint=f"there are {', '.join(known)}"
        )
    return known[name]


def load_configuration(path: str | None = None) -> Configuration:
    """Read a configuration file (.ini); None is the one packaged with Vela.

    Raises PluginError without Vela's package, and OptionError for a file that is unreadable or not in Vela's format.
    """
    found = Path(path) if path else packaged_configuration()
    try:
        text = found.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot be read: {error}", where=f"Vela configuration {found}") from error
    return _parse(str(found), text)


#: Prefixes of section names.
SYSTEM: Final = "System_Config."
MEMORY: Final = "Memory_Mode."


@lru_cache(maxsize=8)
def _parse(path: str, text: str) -> Configuration:
    where = f"Vela configuration {path}"
    # Vela parses it the same way, too, but keeps "%" special.
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise OptionError(f"is not of the form of an .ini file: {error}", where=where) from error
    clocks: dict[str, float] = {}
    limits: dict[str, int | None] = {}
    sections: dict[str, dict[str, str]] = {}
    for section in parser.sections():
        if not section.startswith((SYSTEM, MEMORY)):
            continue
        try:
            values = sections[section] = _inherited(parser, section)
            if section.startswith(SYSTEM):
                clocks[section.removeprefix(SYSTEM)] = _number(float, values, "core_clock") or 0.0
            else:
                limits[section.removeprefix(MEMORY)] = _number(int, values, "arena_cache_size")
        except ValueError as error:
            raise OptionError(str(error), where=f"{where}, section {section}") from error
    return Configuration(path, sections, clocks, limits)


def _number(kind: Callable[[str], _Found], values: Mapping[str, str], key: str) -> _Found | None:
    """The number of a key, or None without it. Raises ValueError with the key and the reason."""
    try:
        return kind(values[key]) if key in values else None
    except ValueError as error:
        raise ValueError(f"{key}={values[key]}: {error}") from error


def _inherited(parser: configparser.ConfigParser, section: str) -> dict[str, str]:
    """The keys of a section, with inherited ones that it does not set. Raises ValueError with the reason."""
    found: dict[str, str] = {}
    seen = set()
    name: str | None = section
    while name is not None:
        if name in seen:
            raise ValueError("inherits from itself")
        seen.add(name)
        if not parser.has_section(name):
            raise ValueError(f"inherits from {name}, which does not exist")
        values = dict(parser.items(name))
        name = values.pop("inherit", None)
        found = values | found
    return found
