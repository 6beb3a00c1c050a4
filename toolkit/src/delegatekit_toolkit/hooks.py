"""Hooks of a plugin that load their code when they are called, so that discovery imports neither torch nor a tool.

    # plugin.py
    create_partitioner = lazy_hook("create_partitioner", "delegatekit_mine.support:MinePartitioner")
    preprocess = lazy_hook("preprocess", "delegatekit_mine.compile:compile_partition")
    documentation = lazy_documentation("delegatekit_mine.support:TABLE")

A hook that does more is a function of the module, marked with `hookimpl`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from delegatekit_api import BackendSpec, hookimpl
from delegatekit_api.documentation import BackendDocumentation


def lazy_hook(name: str, reference: str) -> Callable[..., Any]:
    """The hook of this name, made of a reference "package.module:name" to a function, a class or a value.

    A function or class is called with those of the hook's arguments that its parameters name; a value is the answer.
    Raises ValueError for a name that no hook has, and for what is not such a reference. The hook raises ImportError
    where the reference leads nowhere, and TypeError where a parameter is none of the hook's arguments.

    >>> lazy_hook("targets", "string:digits")()
    '0123456789'
    >>> lazy_hook("targets", "string:targets")()
    Traceback (most recent call last):
    ...
    ImportError: 'string:targets' leads nowhere: string has no targets
    """
    specification = getattr(BackendSpec, name, None)
    if specification is None:
        raise ValueError(f"there is no hook {name}, for which {reference!r} is given")
    signature = inspect.signature(specification)

    def implementation(*arguments: Any, **named: Any) -> Any:
        found = resolve(reference)
        if not callable(found):
            return found
        given = signature.bind_partial(None, *arguments, **named).arguments
        wanted = inspect.signature(found).parameters
        for key, parameter in wanted.items():
            if parameter.default is parameter.empty and key not in signature.parameters:
                raise TypeError(f"{reference!r} has the parameter {key}, which the hook {name} does not give")
        return found(**{key: value for key, value in given.items() if key in wanted})

    return _hook(name, reference, implementation)


def lazy_documentation(reference: str) -> Callable[..., Any]:
    """The hook `documentation`, made of a reference to the support table. Raises as `lazy_hook` does."""

    def implementation() -> BackendDocumentation:
        from .operator_tables import operator_table

        return BackendDocumentation(operator_table({"conditions": resolve(reference)}))

    return _hook("documentation", reference, implementation)


def resolve(reference: str) -> Any:
    """The object that a reference "package.module:name" names. Raises ImportError if there is none.

    >>> resolve("json:dumps")([])
    '[]'
    """
    module, _, name = reference.partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # what the module itself imports is missing
        raise ImportError(f"{reference!r} leads nowhere: there is no module {error.name}") from error
    if not hasattr(found, name):
        raise ImportError(f"{reference!r} leads nowhere: {module} has no {name}")
    return getattr(found, name)


def _hook(name: str, reference: str, implementation: Callable[..., Any]) -> Callable[..., Any]:
    """An implementation with the name and the arguments of its hook, by which pluggy calls it."""
    module, _, attribute = reference.partition(":")
    if not module or not attribute.isidentifier():
        raise ValueError(f"{reference!r}, given for the hook {name}, is not like package.module:name")
    wrapped = wraps(getattr(BackendSpec, name), updated=())(implementation)
    wrapped.reference = reference  # type: ignore[attr-defined]
    return hookimpl(wrapped)
