"""The statements of a plugin that no example of a profile runs: a fault there is not found."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .changes import Source
from .example import Example, mask
from .sites import Plugin


@dataclass(frozen=True)
class Statement:
    """A statement of a function: its file in the plugin's folder, its line (from 1), and its text."""

    file: str
    line: int
    text: str


def statements(plugin: Plugin, examples: Iterable[Example]) -> Iterator[Statement]:
    """The statements of functions that no example reaches, by file and line; docstrings do not count."""
    reached: dict[str, int] = {}
    for example in examples:
        for file, lines in example.lines.items():
            reached[file] = reached.get(file, 0) | lines
    for file, source in plugin.sources.items():
        for first, last in sorted(_of_functions(source)):
            if not reached.get(file, 0) & mask(first, last):
                yield Statement(file, first, source.line(first))


def _of_functions(source: Source) -> set[tuple[int, int]]:
    """The first and the last line of each statement; of a compound one those of its head."""
    return {
        (node.lineno, _last(node))
        for function in ast.walk(source.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for body in function.body
        for node in ast.walk(body)
        if isinstance(node, ast.stmt) and not _is_text(node)
    }


def _last(node: ast.stmt) -> int:
    inner = getattr(node, "body", None) or getattr(node, "cases", None)
    if not inner:
        return node.end_lineno or node.lineno
    head = inner[0].pattern if isinstance(inner[0], ast.match_case) else inner[0]
    return max(node.lineno, head.lineno - 1)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
