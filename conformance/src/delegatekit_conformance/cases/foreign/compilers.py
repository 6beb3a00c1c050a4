"""Calls of stock ExecuTorch's compiler for a backend's delegate id: a vendor's file describes them, `write` makes them.

The file is `stock.toml` in the package of the plugin's module:

    package = "acme_tools"         # optional: what the compiler needs beside the wheel executorch
    states = "float16"             # optional: how exact buffers that change are kept; else as exact as the rest
    least_size = 2                 # optional: smaller sizes of dimensions that change are written as not allowed

    [[way]]
    name = "half"                  # in the names of cases: "foreign/half/images"
    precision = "float16"          # how exact a device then computes
    quick = { groups = ["images"], operators = 8, others = 0 }  # optional, as `default`: what these profiles try
    partitioner = { call = "executorch.backends.acme:AcmePartitioner", half = true }

    [[own]]                        # optional: a call of an operator that only stock's tools for the backend have
    title = "a norm of rows, with weights"
    library = "executorch.backends.acme.operators"  # the module that defines it
    operator = "acme.row_norm.default"
    shapes = [[2, 3, 8], [8]]      # of its tensors, which come first
    numbers = [1e-5]               # optional: its other arguments

Keys above the ways are defaults of each. A table with `call` stands for what that
function or class returns for the table's other entries, a table with `name` for what has this name, "module:name". The
compiler is called in the process of the stock runtime: it prints progress, changes logging, and loads much.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch.export import ExportedProgram

from delegatekit_toolkit.json_text import parse_object, to_json

from ... import vendor

#: The file's name in the plugin's package.
FILE: Final = "stock.toml"


@dataclass(frozen=True)
class Share:
    """The part of the room's programs that a profile tries in one way."""

    #: Groups of the room's own modules; empty for all.
    groups: tuple[str, ...] = ()
    #: One of this many operators.
    operators: int = 1
    #: One of this many modules of other rooms; 0 for none.
    others: int = 1


@dataclass(frozen=True)
class Own:
    """A call of an operator that no front end writes: users call it by its name."""

    title: str
    #: The module that defines it.
    library: str
    operator: str
    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[int | float | bool, ...] = ()


@dataclass(frozen=True)
class Way:
    """One way to write files: its name, the precision of a device then, and the compiler's partitioner."""

    name: str
    precision: str
    #: The table `partitioner`, as JSON.
    partitioner: str
    #: Package that the compiler needs beside the wheel executorch.
    package: str = ""
    #: Precision of buffers that change; empty for the device's compute precision.
    states: str = ""
    #: The least size of a dimension that changes.
    least_size: int = 0
    #: Share of the quick profile, and of the default one; others try all.
    quick: Share = Share()
    default: Share = Share()
    own: tuple[Own, ...] = ()

    @property
    def missing(self) -> str:
        """Reason why it cannot be used here; empty if none is known."""
        if self.package and find_spec(self.package) is None:
            return f"stock's compiler needs the package {self.package}: pip install {self.package}"
        return ""

    def share(self, profile: str) -> Share:
        """The share that a profile tries."""
        return {"quick": self.quick, "default": self.default}.get(profile, Share())


def ways_of(backend: str) -> Mapping[str, Way]:
    """The ways in a backend's wheel by name; none if it has no such file. Raises InputError if it is invalid.

    >>> parse('[[way]]\\nname = "plain"\\nprecision = "float32"\\npartitioner = {call = "acme:P"}')["plain"].partitioner
    '{"call": "acme:P"}'
    """
    found = vendor.file_of(backend, FILE)
    return parse(*found) if found else {}


def parse(text: str, where: str = FILE) -> Mapping[str, Way]:
    """The ways in a file's text. Raises InputError, with `where`, if there are none."""
    ways = vendor.entries_of(text, where, "way", _way, "ways of stock's compiler")
    return {way.name: way for way in ways}


def _way(
    partitioner: Mapping[str, Any],
    quick: Mapping[str, Any] | None = None,
    default: Mapping[str, Any] | None = None,
    own: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> Way:
    return Way(
        partitioner=to_json(partitioner, indent=None),
        quick=_share(quick or {}),
        default=_share(default or {}),
        own=tuple(map(_own, own)),
        **fields,
    )


def _own(values: Mapping[str, Any]) -> Own:
    shapes = tuple(tuple(int(size) for size in shape) for shape in values["shapes"])
    return Own(**{**values, "shapes": shapes, "numbers": tuple(values.get("numbers", ()))})


def _share(values: Mapping[str, Any]) -> Share:
    share = Share(**{**values, "groups": tuple(values.get("groups", ()))})
    if share.operators < 1 or share.others < 0:
        raise ValueError("operators must be at least 1, others at least 0")
    return share


def write(partitioner: str, exported: ExportedProgram) -> bytes:
    """The file of stock's pipeline, with the delegates of a partitioner (`Way`); without any, if that is empty.

    Raises whatever the pipeline raises.
    """
    from executorch.exir import to_edge_transform_and_lower

    made = [_value(parse_object(partitioner.encode(), FILE))] if partitioner else []
    with torch.no_grad():
        edge = to_edge_transform_and_lower(exported, partitioner=made)
        buffer: bytes = edge.to_executorch().buffer
    return buffer


def _value(entry: Any) -> Any:
    """The object that an entry of the file describes."""
    if not isinstance(entry, dict):
        return entry
    if "name" in entry:
        return _named(entry["name"])
    values = {key: _value(value) for key, value in entry.items() if key != "call"}
    return _named(entry["call"])(**values) if "call" in entry else values


def _named(path: str) -> Any:
    """The object with a name, "module:name"."""
    module, _, name = path.partition(":")
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))
