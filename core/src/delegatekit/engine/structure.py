"""Reads the structure of a method's inputs and outputs: pytree JSON, which must not make this process import anything.

PyTorch's own reader imports the module that the text names for an enum or a defaultdict's factory, but a file must not
choose what is imported. Such texts are read only if the name is an enum of a loaded module, or a plain built-in type.
"""

from __future__ import annotations

import enum
import json
import sys
from contextlib import suppress
from typing import Any

from torch.utils._pytree import TreeSpec, treespec_loads

#: Factories of a defaultdict that a file may name.
_FACTORIES = frozenset({"bool", "dict", "float", "int", "list", "set", "str", "tuple"})


def read_structure(text: str | None) -> TreeSpec | None:
    """The structure; None if there is none, or if it has types that are unknown here: then values stay flat."""
    if not text:
        return None
    try:
        _, node = json.loads(text)
        _check(node)
        return treespec_loads(text)
    except Exception:
        return None


def read_input_structure(text: str | None) -> TreeSpec | None:
    """The same for inputs: the arguments as a tuple, and the keyword arguments as a dict."""
    structure = read_structure(text)
    if structure is None or structure.type is not tuple or structure.num_children != 2:
        return None
    arguments, keywords = structure.children()
    fits = arguments.type is tuple and keywords.type is dict and isinstance(keywords.context, list)
    return structure if fits else None


def _check(node: Any) -> None:
    """Raise ValueError for what would be imported, and what it raises for what has not the form of a structure."""
    context = node["context"]
    if node["type"] == "collections.defaultdict":
        if context["default_factory_module"] != "builtins" or context["default_factory_name"] not in _FACTORIES:
            raise ValueError("the factory is not a built-in type")
    elif isinstance(context, str):
        with suppress(json.JSONDecodeError):  # some types have a plain name there
            json.loads(context, object_hook=_check_enum)
    for child in node["children_spec"]:
        _check(child)


def _check_enum(item: dict[str, Any]) -> dict[str, Any]:
    if "__enum__" in item:
        module, _, name = item["fqn"].partition(":")
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, enum.EnumMeta):
            raise ValueError("is not an enum")
    return item
