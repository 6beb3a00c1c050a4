"""Reuse of a map of other sources: examples whose code of the plugin is unchanged keep their lines.

Moved code has other line numbers. Examples that run changed code are recorded anew, and so are cases that draw other
examples. Kept entries are likely, not certain: they are verified before they count (`Attempt.sound`).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from .example import Example, mask
from .sites import Plugin

#: All lines of a file.
_ALL = -1


def files_of(plugin: Plugin) -> dict[str, str]:
    """The plugin's files as a map keeps them: Python sources as they are, a digest of each shader."""
    sources = {file: source.data.decode() for file, source in plugin.sources.items()}
    return sources | {file: hashlib.sha256(data).hexdigest() for file, data in plugin.shaders.items()}


class Moved:
    """New positions of the code of older files, and the parts that no longer exist."""

    def __init__(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Both as `files_of` gives them. Raises SyntaxError if a file is no Python."""
        #: For each file that differs: its changed lines (a mask), and spans that moved, with the number of lines.
        self._files: dict[str, tuple[int, list[tuple[int, int]]]] = {}
        for file, text in old.items():
            if new.get(file) != text:
                both = file.endswith(".py") and file in new
                self._files[file] = _compared(text, new[file]) if both else (_ALL, [])

    def example(self, example: Example) -> Example | None:
        """The example with the lines as they are now; None if it runs code that changed."""
        lines = dict(example.lines)
        for file, (changed, spans) in self._files.items():
            reached = lines.pop(file, 0)
            if reached & changed:
                return None
            if reached:
                lines[file] = _shifted(reached, spans)
        return replace(example, lines=lines, carried=True)


def _compared(old: str, new: str) -> tuple[int, list[tuple[int, int]]]:
    """The changed lines of a source, and for those that stayed: a mask, and by how many lines they moved."""
    places: dict[str, list[int]] = {}
    for text, first, _, _ in _units(new):
        places.setdefault(text, []).append(first)
    changed, spans = 0, []
    for text, first, last, is_function in _units(old):
        if places.get(text):
            spans.append((mask(first, last), places[text].pop(0) - first))
        else:
            # Definitions of a module or a class may be used anywhere in the file.
            changed |= mask(first, last) if is_function else _ALL
    return changed, spans


def _units(text: str) -> Iterator[tuple[str, int, int, bool]]:
    """The functions and other statements of a module and its classes: text, first and last line, whether a function."""
    lines = text.splitlines()
    left: list[ast.stmt] = list(ast.parse(text).body)
    for node in left:
        if isinstance(node, ast.ClassDef):
            left += node.body
        elif not isinstance(node, ast.Import | ast.ImportFrom) and not _is_text(node):
            marks = getattr(node, "decorator_list", ())
            first, last = min([node.lineno, *(mark.lineno for mark in marks)]), node.end_lineno or node.lineno
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield "\n".join(lines[first - 1 : last]), first, last, is_function


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _shifted(reached: int, spans: list[tuple[int, int]]) -> int:
    found = 0
    for lines, by in spans:
        part = reached & lines
        found |= part << by if by >= 0 else part >> -by
    return found
