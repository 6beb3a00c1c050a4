"""Use of a plugin's shaders by examples: dispatched shaders, and their blocks that may then run.

Python's lines do not show what runs inside a shader. What may run is known where it is dispatched: a function of the
plugin is given the shader's name, and a number for each of its specialization constants, by which the shader branches.
They are the argument that the function calls constants, where it has one: other sequences of as many numbers, as sizes
are, change from call to call.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import shaders
from .sites import Plugin


class Dispatches:
    """Records the dispatches of this process from `begin` on."""

    def __init__(self, plugin: Plugin) -> None:
        """Put a watch around each function of the plugin that some call gives the name of a shader."""
        self._constants = {Path(file).stem: shaders.specialized(data) for file, data in plugin.shaders.items()}
        self._files = {Path(file).stem: file for file in plugin.shaders}
        self._plugin = plugin
        self._found: dict[str, int] = {}
        self._known: dict[tuple[str, tuple[float, ...]], int] = {}
        names = set(_given_names(plugin, set(self._files)))
        for module in [sys.modules[name] for name in sorted(sys.modules) if _is_of(sys.modules[name], plugin)]:
            for owner in (module, *(item for item in vars(module).values() if inspect.isclass(item))):
                for name in names & set(vars(owner)):
                    self._watch(owner, name)

    def begin(self) -> None:
        """Forget what was dispatched."""
        self._found = {}

    def end(self) -> Mapping[str, int]:
        """The blocks that may have run (`blocks.Blocks`), by the files of the shaders that were dispatched."""
        return self._found

    def _watch(self, owner: Any, name: str) -> None:
        function = vars(owner)[name]
        if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
            return
        parameters = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._see((*args, *kwargs.values()), (*parameters[: len(args)], *kwargs))
            return function(*args, **kwargs)

        with suppress(AttributeError, TypeError):
            setattr(owner, name, watched)

    def _see(self, values: Sequence[Any], parameters: Sequence[str]) -> None:
        for name in (value for value in values if isinstance(value, str) and value in self._files):
            named = [value for value, parameter in zip(values, parameters, strict=False) if "constants" in parameter]
            known = [tuple(value) for value in named or values if self._are_constants(value, name)]
            file = self._files[name]
            for numbers in known or [()]:
                self._found[file] = self._found.get(file, 0) | self._reached(file, numbers)

    def _are_constants(self, value: Any, shader: str) -> bool:
        """True if it is a finite number for each specialization constant of the shader."""
        if not isinstance(value, tuple | list) or len(value) != self._constants[shader]:
            return False
        return all(isinstance(one, int | float) and math.isfinite(one) for one in value)

    def _reached(self, file: str, numbers: tuple[float, ...]) -> int:
        key = file, numbers
        if key not in self._known:
            self._known[key] = self._plugin.blocks(file).reached(numbers)
        return self._known[key]


def _given_names(plugin: Plugin, stems: set[str]) -> Iterator[str]:
    """The names of functions that a call in the plugin gives the name of a shader."""
    for source in plugin.sources.values():
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            arguments = (*node.args, *(item.value for item in node.keywords))
            if any(isinstance(item, ast.Constant) and item.value in stems for item in arguments):
                match node.func:
                    case ast.Name(id=name) | ast.Attribute(attr=name):
                        yield name


def _is_of(module: Any, plugin: Plugin) -> bool:
    with suppress(Exception):  # it has no file, or is a foreign object that raises anything
        return plugin.folder.resolve() in Path(module.__file__).resolve().parents
    return False
