"""The constants of a plugin's modules: a change of one takes effect where a function reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from .sites import Mutant, Plugin, runs_once


@dataclass(frozen=True)
class Constant:
    """A constant that a mutant changes, with all places that read it."""

    #: The module that defines it, and its value there as the mutant has it.
    file: str
    value: str
    #: The names that read it, by file; all are in functions that run in each example.
    uses: tuple[tuple[str, ast.Name], ...]


def constant(plugin: Plugin, mutant: Mutant) -> Constant | None:
    """The constant that a mutant changes; None if it changes something else, or if something else reads it."""
    source = plugin.sources[mutant.file]
    end = mutant.start + len(mutant.before.encode())
    for statement in source.tree.body:
        for name, value in _bound(statement):
            first, last = source.span(value)
            if first <= mutant.start and end <= last:
                text = source.data[first : mutant.start].decode() + mutant.after + source.data[end:last].decode()
                uses = _uses(plugin, mutant.file, name)
                return Constant(mutant.file, text, tuple(uses)) if uses else None
    return None


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives a value, each with its own."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            for target, value in zip(names, values, strict=True):
                if isinstance(target, ast.Name):
                    yield target.id, value


def _uses(plugin: Plugin, file: str, name: str) -> list[tuple[str, ast.Name]] | None:
    """The places where a module's constant is read, or None if it is read otherwise than by its name in a function."""
    found: list[tuple[str, ast.Name]] = []
    for other, source in plugin.sources.items():
        if name not in source.mentioned and other != file:
            continue
        imported = [
            alias
            for node in ast.walk(source.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == PurePosixPath(file).stem
            for alias in node.names
            if alias.name == name
        ]
        if any(alias.asname for alias in imported):
            return None
        if any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(source.tree)):
            return None
        if other != file and not imported:
            continue
        for use in source.uses(name):
            function = source.function(use)
            if function is None or runs_once(plugin, function):
                return None
            found.append((other, use))
    return found
