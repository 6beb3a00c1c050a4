"""Every example in a docstring of the toolkit runs, and every module has one."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import delegatekit_toolkit

MODULES = [module.name for module in pkgutil.iter_modules(delegatekit_toolkit.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name: str) -> None:
    result = doctest.testmod(import_module(f"delegatekit_toolkit.{name}"), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0


def test_the_table_of_modules_is_complete() -> None:
    table = delegatekit_toolkit.__doc__ or ""
    assert [name for name in MODULES if f"| `{name}` |" not in table] == []
