"""Every example in a docstring of the toolkit runs, and every module has one."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import delegatekit_toolkit

MODULES = [module.name for module in pkgutil.iter_modules(delegatekit_toolkit.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name: str) -> None:
    module = import_module(f"delegatekit_toolkit.{name}")
    parts = [import_module(f"{module.__name__}.{part.name}") for part in pkgutil.iter_modules(_folders(module))]
    results = [doctest.testmod(part, optionflags=doctest.ELLIPSIS) for part in (module, *parts)]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) > 0


def _folders(module: ModuleType) -> list[str]:
    """Where the modules of a package lie; nowhere for a module."""
    return list(getattr(module, "__path__", ()))


def test_the_table_of_modules_is_complete() -> None:
    table = delegatekit_toolkit.__doc__ or ""
    assert [name for name in MODULES if f"| `{name}` |" not in table] == []
