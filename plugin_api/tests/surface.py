"""The plugin API's surface as text, a line for each thing that a plugin may rely on, and the rules for its changes.

    python plugin_api/tests/surface.py     write surfaces/VERSION.txt for the API version that is imported

Those of older versions were written from their commits, with PYTHONPATH. docs/versions.md has the rules in words. Types
are not held here: mypy and the frozen wheels of tests/frozen do that.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import delegatekit_api

FOLDER: Final = Path(__file__).parent / "surfaces"

#: A thing's full name -> its kind, and what of it must not change.
Surface = dict[str, str]


def surface() -> Surface:
    """Everything that the imported `delegatekit_api` offers."""
    found: Surface = {}
    homes: dict[int, str] = {}
    inner = sorted(module.name for module in pkgutil.iter_modules(delegatekit_api.__path__))
    for module in ["", *(name for name in inner if not name.startswith("_"))]:
        loaded = importlib.import_module(f"delegatekit_api.{module}".rstrip("."))
        for name in sorted(_public(loaded)):
            value, full = getattr(loaded, name), f"{loaded.__name__}.{name}"
            if isinstance(value, type | types.FunctionType) and id(value) in homes:
                found[full] = f"is {homes[id(value)]}"
            else:
                homes[id(value)] = full
                found.update(_described(full, value))
    return found


def _public(module: types.ModuleType) -> list[str]:
    """The names that a module offers: those of `__all__`, or its own."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [name for name in own if not name.startswith("_")]


def _described(full: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, types.FunctionType):
        yield full, "function"
        yield from _parameters(full, value)
    elif isinstance(value, type):
        yield from _class(full, value)
    elif isinstance(value, types.ModuleType) or typing.get_origin(value) is not None:
        yield full, "alias"
    else:
        shown = sorted(value) if isinstance(value, frozenset) else value
        yield full, f"constant {shown!r}" if isinstance(value, str | frozenset) else f"a {type(value).__name__}"


def _class(full: str, value: type) -> Iterator[tuple[str, str]]:
    protocol = getattr(value, "_is_protocol", False)
    bases = [base.__name__ for base in value.__mro__[1:-1] if base.__module__ != "typing"]
    yield full, " ".join(["protocol" if protocol else "class", *(["of", *bases] if bases else [])])
    if dataclasses.is_dataclass(value):
        for number, field in enumerate(field for field in dataclasses.fields(value) if field.init):
            # One with a default is passed by name: a minor version may put others before it.
            yield f"{full}.{field.name}", f"field{_default(field) or f' {number}'}"
    elif protocol:
        for name in sorted(value.__annotations__):
            yield f"{full}.{name}", "attribute"
    if issubclass(value, enum.Enum):
        for member in value:
            yield f"{full}.{member.name}", f"member {member.value!r}"
    for name, item in sorted(_members(value)):
        kind = "attribute"
        if callable(item) or isinstance(item, classmethod | staticmethod):
            kind = "hook" if any(key.endswith("_spec") for key in vars(item) or ()) else "method"
        yield f"{full}.{name}", kind
        if kind != "attribute":
            yield from _parameters(f"{full}.{name}", item)


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """The public attributes that a class defines: methods and properties, and the constructor of one with its own."""
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for name, item in vars(value).items():
        written = isinstance(item, types.FunctionType | classmethod | staticmethod | property) or _is_cached(item)
        made = dataclasses.is_dataclass(value) or getattr(value, "_is_protocol", False)
        own = not name.startswith("_") or (name == "__init__" and not made)
        if written and own and name not in fields:
            yield name, item


def _is_cached(item: Any) -> bool:
    return type(item).__name__ == "cached_property"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory.__name__}()"
    if field.default is dataclasses.MISSING:
        return ""
    return f" = {_shown(field.default)}"


def _shown(default: Any) -> str:
    return (
        "API_VERSION" if default is importlib.import_module("delegatekit_api._version").API_VERSION else repr(default)
    )


def _parameters(full: str, function: Any) -> Iterator[tuple[str, str]]:
    function = getattr(function, "__func__", function)
    for number, item in enumerate(inspect.signature(function).parameters.values()):
        if item.name in ("self", "cls"):
            continue
        default = "" if item.default is item.empty else f" = {_shown(item.default)}"
        place = "keyword" if item.kind is item.KEYWORD_ONLY else number
        yield f"{full}({item.name})", f"argument {place}{default}"


def text(found: Surface) -> str:
    """A surface as lines, to be read and compared."""
    return "".join(f"{name}: {what}\n" for name, what in sorted(found.items()))


def read(version: str) -> Surface:
    """The surface of a version as it was written."""
    lines = (FOLDER / f"{version}.txt").read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def forbidden(old: Surface, new: Surface, moved: Mapping[str, str]) -> list[str]:
    """What the rules forbid in a minor version; `moved` has old names, and where the things are now."""
    found = []
    for name, what in old.items():
        now = _renamed(name, moved)
        if now not in new:
            found.append(f"{name} is gone: a minor version removes nothing; keep it, with a row in DEPRECATIONS")
        elif new[now] != _renamed(what, moved) and not (now != name and new[now].startswith("is ")):
            found.append(f"{name} was {what!r} and is {new[now]!r}: a minor version changes nothing; add another name")
    for name in new.keys() - old.keys():
        owner, what = name.rpartition("(")[0] or name.rpartition(".")[0], new[name]
        if owner not in old:
            continue
        if old[owner].startswith("protocol"):
            found.append(f"{name} is new in a protocol that plugins implement: make it a protocol of its own")
        elif what.startswith(("field", "argument")) and " = " not in what and old[owner] != "hook":
            found.append(f"{name} is new and has no default: what plugins of an older minor write would fail")
    return sorted(found)


def _renamed(text: str, moved: Mapping[str, str]) -> str:
    """A name, or "is NAME", after the moves."""
    for gone, now in moved.items():
        if re.match(rf"(is )?{re.escape(gone)}(?=[.(]|$)", text):
            return text.replace(gone, now, 1)
    return text


if __name__ == "__main__":
    version = importlib.import_module("delegatekit_api._version").API_VERSION
    (FOLDER / f"{version}.txt").write_text(text(surface()), "utf-8")
