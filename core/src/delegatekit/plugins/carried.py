"""Serialization of errors between processes: plain data from which the other side rebuilds the error."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import delegatekit_api
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.json_text import to_json

from .blame import fault


def described(error: BaseException) -> dict[str, Any]:
    """An error as plain data: its classes, and its parts or text."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if isinstance(error, DelegateKitError):
        with suppress(Exception):
            parts = {"kinds": kinds, "what": error.what, "where": error.where, "hint": error.hint}
            to_json(parts)
            if all(item is None or isinstance(item, str) for item in (error.what, error.where, error.hint)):
                return parts
    return {"kinds": kinds, "fault": fault(error)}


def restored(parts: Mapping[str, Any]) -> Exception:
    """The error with these parts: of its class, or of the nearest one in this process."""
    if "fault" not in parts:
        return known_class(parts["kinds"])(parts["what"], where=parts["where"], hint=parts["hint"])
    name, _, text = str(parts["fault"]).partition(": ")
    for kind in parts["kinds"]:
        found = getattr(builtins, kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            with suppress(TypeError):  # a class not constructible from a text
                return found(text if kind == name else parts["fault"])
    return RuntimeError(parts["fault"])


def known_class(kinds: Sequence[str]) -> type[DelegateKitError]:
    """The nearest class of a DelegateKit error in this process."""
    for name in kinds:
        kind = getattr(delegatekit_api, name, None)
        if isinstance(kind, type) and issubclass(kind, DelegateKitError):
            return kind
    return DelegateKitError
