"""Converts a caller's arguments to the flat inputs of the file, and names these in messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

from delegatekit_api import ExecutionError

from ..pte import PteFile, schema
from ..pte.manifest import read_manifest
from .structure import read_input_structure


class Inputs:
    """The inputs of one method: the structure at export, if the file has it, and parameters' names.

    `text` is the structure as pytree JSON. `parameters` are the names of the exported call's positional arguments,
    followed by those of its keywords, as far as known. `absent` marks the flat inputs that are
    None in the file.
    """

    def __init__(self, method: str, text: str | None, parameters: Sequence[str], absent: Sequence[bool]) -> None:
        self._method = method
        self._was_written = bool(text)
        self._absent = absent
        structure = read_input_structure(text)
        # Some writers put a structure there that is not that of the inputs: use it only if it fits.
        fits = structure is not None and structure.num_leaves == len(absent)
        self._structure = structure if fits else None
        self._positional: list[TreeSpec] = []
        self._keywords: dict[str, TreeSpec] = {}
        if structure is not None and fits:
            positional, keywords = structure.children()
            self._positional = positional.children()
            self._keywords = dict(zip(keywords.context, keywords.children(), strict=True))
        self._parameters = list(parameters)
        known = len(parameters) == len(self._positional) + len(self._keywords)
        self._names = self._parameters[: len(self._positional)] if known else []

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat inputs of a call. Arguments may be given by position or by name, as the module takes them.

        A parameter for which the file has None may be left out. Raises ExecutionError that names the argument, or the
        part of it, that is missing, unknown or of another structure.
        """
        if self._structure is None:
            return self._flattened(args, kwargs)
        flat, given = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if given == self._structure:
            return flat
        return self._bound(args, kwargs)

    def describe(self, position: int) -> str:
        """The name of a flat input: "x", "pair['a']"; its number if it has no known name."""
        return self._paths[position] if position < len(self._paths) else str(position)

    # -- arguments -----------------------------------------------------------------------------------------------

    def _flattened(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat inputs of a call of unknown structure: only unambiguous containers can be flattened."""
        if len(args) + len(kwargs) == len(self._parameters) and all(
            name in kwargs for name in self._parameters[len(args) :]
        ):
            args, kwargs = [*args, *(kwargs[name] for name in self._parameters[len(args) :])], {}
        flat, given = pytree.tree_flatten(tuple(args))
        if not kwargs and not _has_dict(given):
            return list(args) if len(flat) != len(self._absent) == len(args) else flat
        reason = "has a type that is unknown here" if self._was_written else "is not in the file"
        self._refuse(
            f"takes {len(self._absent)} inputs in their flat order: the structure of its inputs {reason}",
            hint="register the type (torch.export.register_dataclass, or torch.utils._pytree) under a "
            "serialized_type_name, before lowering and before loading",
        )
        return None

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat inputs of a call that differs in form from the exported one."""
        parameters = [*self._positional_names, *self._keywords]
        specs = [*self._positional, *self._keywords.values()]
        if len(args) > len(self._positional):
            self._refuse(
                f"takes {len(self._positional)} arguments by position, got {len(args)}",
                hint=f"it was lowered for a call with {self._signature}",
            )
        given = dict(kwargs)
        for name, value in zip(parameters, args, strict=False):
            if name in given:
                self._refuse(f"got {name} by position and by name")
            given[name] = value
        strangers = [name for name in given if name not in parameters]
        if strangers:
            self._refuse(
                f"has no parameter {', '.join(strangers)}",
                hint=f"it was lowered for a call with {self._signature}",
            )
        flat: list[Any] = []
        for name, spec in zip(parameters, specs, strict=True):
            if name in given:
                self._collect(given[name], spec, name, flat)
            elif all(self._absent[len(flat) : len(flat) + spec.num_leaves]):
                flat.extend([None] * spec.num_leaves)
            else:
                self._refuse(f"is missing {name}", hint=f"it was lowered for a call with {self._signature}")
        return flat

    def _collect(self, value: Any, spec: TreeSpec, path: str, flat: list[Any]) -> None:
        """Append the leaves of `value`, which must have the structure `spec`; the order of dicts does not matter."""
        parts, given = pytree.tree_flatten(value, is_leaf=lambda item: item is not value)
        if spec.is_leaf():
            if not given.is_leaf():
                self._refuse(f"is a {type(value).__name__}, not a tensor or number", path)
            flat.append(value)
            return
        if given.is_leaf() or str(given.type) != str(spec.type):
            self._refuse(f"is a {type(value).__name__}, not a {spec.type.__name__}", path)
        if isinstance(value, dict):
            wanted = _keys(spec)
            for key in wanted:
                if key not in value:
                    self._refuse(f"is missing the key {key!r}", path)
            unknown = [repr(key) for key in value if key not in wanted]
            if unknown:
                self._refuse(f"has keys that it was not lowered with: {', '.join(unknown)}", path)
            parts = [value[key] for key in wanted]
        elif len(parts) != spec.num_children:
            self._refuse(f"has {len(parts)} items, not {spec.num_children}", path)
        elif given.context != spec.context:
            self._refuse(f"is a {type(value).__name__} of another form than it was lowered with", path)
        for step, part, inner in zip(_steps(spec), parts, spec.children(), strict=True):
            self._collect(part, inner, path + step, flat)

    def _refuse(self, what: str, path: str | None = None, hint: str | None = None) -> NoReturn:
        where = f"method {self._method}" if path is None else f"method {self._method}, input {path}"
        raise ExecutionError(what, where=where, hint=hint)

    # -- names ---------------------------------------------------------------------------------------------------

    @property
    def _positional_names(self) -> list[str]:
        return self._names or [str(number) for number in range(len(self._positional))]

    @property
    def _signature(self) -> str:
        names = [*(self._names or [f"argument {number}" for number in range(len(self._positional))])]
        return ", ".join([*names, *(f"{name}=..." for name in self._keywords)]) or "no arguments"

    @cached_property
    def _paths(self) -> list[str]:
        paths: list[str] = []

        def visit(spec: TreeSpec, path: str) -> None:
            if spec.is_leaf():
                paths.append(path)
            for step, child in zip(_steps(spec), spec.children(), strict=True):
                visit(child, path + step)

        for name, spec in zip(self._positional_names, self._positional, strict=True):
            visit(spec, name)
        for name, spec in self._keywords.items():
            visit(spec, name)
        return paths


def inputs_of(file: PteFile, plan: schema.ExecutionPlan) -> Inputs:
    """The inputs of a method of a file."""
    name, container = str(plan.name), plan.container_meta_type
    values: Any = plan.values
    absent = [isinstance(values[index].val, schema.Null) for index in plan.inputs or ()]
    text = container.encoded_inp_str if container is not None else None
    return Inputs(name, text, read_manifest(file).parameters.get(name, ()), absent)


def _has_dict(spec: TreeSpec) -> bool:
    return _is_dict(spec) or any(map(_has_dict, spec.children()))


def _is_dict(spec: TreeSpec) -> bool:
    return isinstance(spec.type, type) and issubclass(spec.type, dict)


def _keys(spec: TreeSpec) -> list[Any]:
    """Keys of a dict of any kind: a defaultdict's context starts with its factory."""
    keys = spec.context[1] if issubclass(spec.type, defaultdict) else spec.context
    return list(keys)


def _steps(spec: TreeSpec) -> list[str]:
    """The access path to each child of a container: "[0]", "['a']", ".x"."""
    if _is_dict(spec):
        return [f"[{key!r}]" for key in _keys(spec)]
    fields: Any = getattr(spec.context, "_fields", None)  # a named tuple's context is its class
    if fields is None and isinstance(spec.context, tuple | list) and spec.context:
        fields = spec.context[0]  # a dataclass's is its names: those that are not None, and those that are
    if isinstance(fields, tuple | list) and len(fields) == spec.num_children:
        return [f".{field}" for field in fields]
    return [f"[{number}]" for number in range(spec.num_children)]
