"""Paths of source files as people know them: from the folder that they work in, or from their package."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path, PurePath


def short_source(source: str) -> str:
    """A source line, "/home/me/net/model.py:12: `x = a + b`", with the path from the nearest folder that is known.

    Known are the working folder and those that Python imports from; a path in none of them stays as it is.

    >>> short_source(f"{Path.cwd()}/net/model.py:12: `x = a + b`")
    'net/model.py:12: `x = a + b`'
    """
    path, mark, code = source.partition(": `")
    for folder in _folders(str(Path.cwd()), tuple(sys.path)):
        if path.startswith(folder):
            return path[len(folder) :] + mark + code
    return source


@cache
def _folders(working: str, imports: tuple[str, ...]) -> tuple[str, ...]:
    """The folders, each ending in a separator, the longest first; never the root."""
    found = {str(PurePath(folder)) for folder in (working, *imports) if folder and PurePath(folder).is_absolute()}
    return tuple(sorted((f"{folder}/" for folder in found if folder != "/"), key=len, reverse=True))
