"""Checks the structure of inputs and outputs, pytree JSON, so that reading it causes no imports in this process.

PyTorch's own reader imports the module that the text names for an enum or a defaultdict's factory, but a file must not
choose imports. Allowed are enums of loaded modules, and plain built-in types.
"""

from __future__ import annotations

import enum
import json
import sys
from contextlib import suppress
from typing import Any

#: Factories of a defaultdict that a file may name.
_FACTORIES = frozenset({"bool", "dict", "float", "int", "list", "set", "str", "tuple"})


def check_tree(text: str) -> None:
    """Raise ValueError for an import, and whatever it raises for text that is no structure."""
    _, node = json.loads(text)
    _check(node)


def _check(node: Any) -> None:
    context = node["context"]
    if node["type"] == "collections.defaultdict":
        if context["default_factory_module"] != "builtins" or context["default_factory_name"] not in _FACTORIES:
            raise ValueError("the factory is not a built-in type")
    elif isinstance(context, str):
        with suppress(json.JSONDecodeError):  # some types have a plain name
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
