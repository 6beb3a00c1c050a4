"""A seeded fault: the part of a sound backend that it changes, and the cases that are expected to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeAlias

#: Computes an operator's result wrongly: gets its name, positional and keyword arguments, and the sound function.
Intercept: TypeAlias = "Callable[[str, list[Any], dict[str, Any], Callable[..., Any]], Any]"


@dataclass(frozen=True)
class Fault:
    """One fault.

    `part` says which part of the backend it changes: "call" (an operator's result), "describe", "options",
    "partitioner", "preprocess", "documentation", "targets", "schemes", "precision", "operators of blobs", "version" or
    "runtime"; `change` is then called with the sound part and returns the faulty one, or for "call" instead of each
    operator. For several parts, as in "preprocess and runtime", it is called with the sound part and its name.
    """

    name: str
    what: str
    part: str
    change: Callable[..., Any]
    #: Patterns of the cases that are run to find it: those about the broken part.
    select: tuple[str, ...]
    #: True if it is for a backend that runs native code; others are for the reference backend.
    native: bool = False
    #: The backend that it is for, where that is another.
    base: str = ""


class Wrapped:
    """Something whose attributes are another's, but for those that a subclass has."""

    def __init__(self, sound: Any) -> None:
        self._sound = sound

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sound, name)


_faults: dict[str, Fault] = {}


def fault(
    part: str, *select: str, native: bool = False, base: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the change of a fault, named after it; its docstring describes the fault."""

    def register(change: Callable[..., Any]) -> Callable[..., Any]:
        name = change.__name__.strip("_").replace("_", "-")
        what = " ".join((change.__doc__ or "").split()).rstrip(".")
        if name in _faults or not what:
            raise ValueError(f"fault {name} is registered twice or has no docstring")
        _faults[name] = Fault(name, what, part, change, select, native, base)
        return change

    return register


def wrong(operators: Sequence[str] | str, *select: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that computes these operators wrongly: (operator's name, args, kwargs, sound) -> result.

    Without `select`, the cases of the operators themselves find it.
    """
    names = {operators} if isinstance(operators, str) else set(operators)

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        def intercept(name: str, args: list[Any], kwargs: dict[str, Any], sound: Callable[..., Any]) -> Any:
            if name not in names:
                return sound(*args, **kwargs)
            return compute(name, args, kwargs, sound)

        intercept.__name__, intercept.__doc__ = compute.__name__, compute.__doc__
        fault("call", *(select or tuple(f"operators/{name}/*" for name in sorted(names))))(intercept)
        return compute

    return register


def all_faults() -> dict[str, Fault]:
    """All faults by name. Imports torch."""
    package = __name__.rpartition(".")[0]
    for module in iter_modules(import_module(package).__path__):
        if module.name != "plugin":  # the others register what they define
            import_module(f"{package}.{module.name}")

    return description_faults() | _faults


def description_faults() -> dict[str, Fault]:
    """The faults visible in the backend's description alone. Does not import torch, as a plugin must not then."""
    from . import declared, descriptions, sessions  # noqa: F401

    parts = {"describe", "options", "precision"}
    return {name: fault for name, fault in _faults.items() if parts.intersection(fault.part.split(" and "))}
