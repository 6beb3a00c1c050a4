"""Foreign text (names in files, reasons of plugins, paths) in a form that is safe on a terminal.

Characters that control a terminal, or that hide or reorder others, become escapes as Python writes them.
"""

from __future__ import annotations

import copy
import dataclasses
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

#: Control characters of any sort, formatting (bidirectional overrides, joiners), surrogates, line ends.
_OBEYED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str, keep: str = "\n\t") -> str:
    r"""The text with control characters as escapes, except for the characters to keep.

    >>> visible("a\x1b[2Jb\r\n")
    'a\\x1b[2Jb\\r\n'
    """
    if text.isprintable():
        return text
    return "".join(_escape(item) if item not in keep and _is_obeyed(item) else item for item in text)


def one_line(text: str) -> str:
    r"""The same without line ends: for names, and for anything within a line.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return visible(text, keep="")


def indented(text: str) -> str:
    r"""The same in several lines, all but the first indented: they cannot pass for DelegateKit's own.

    >>> indented("a\nerror: b\n  -> c")
    'a\n    error: b\n  -> c'
    """
    first, *others = visible(text).split("\n")
    return "\n".join([first, *(line if line[:1] in ("", " ") else f"    {line}" for line in others)])


def one_lined(view: _T, keep: Collection[str] = ()) -> _T:
    """A copy of plain data in which each text is one line, at any depth, except for the fields to keep.

    Objects that are neither dataclasses nor Python containers are not traversed.
    """
    found: Any = view
    if isinstance(view, str):
        found = one_line(view)
    elif dataclasses.is_dataclass(view) and not isinstance(view, type):
        found = copy.copy(view)
        for field in dataclasses.fields(view):
            if field.name not in keep:
                object.__setattr__(found, field.name, one_lined(getattr(view, field.name), keep))
    elif isinstance(view, Mapping):
        found = {one_lined(key, keep): one_lined(item, keep) for key, item in view.items()}
    elif type(view) in (list, tuple, set, frozenset):
        found = type(view)(one_lined(item, keep) for item in view)  # type: ignore[call-arg, attr-defined]
    return found  # type: ignore[no-any-return]


def _is_obeyed(item: str) -> bool:
    return unicodedata.category(item) in _OBEYED


def _escape(item: str) -> str:
    return item.encode("unicode_escape").decode("ascii")
