"""The examples in docstrings give the results shown."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest
from packages import packages

MODULES = [module for package in packages() for module, path in package.modules() if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_give_what_they_say(module: str) -> None:
    result = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted and not result.failed
