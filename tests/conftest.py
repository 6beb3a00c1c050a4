"""Fixtures of the tests of several packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def demo(from_source: Any) -> Iterator[str]:
    """The example backend, which adds and multiplies: its name."""
    with from_source(Path(__file__).parents[1] / "examples" / "minimal_backend"):
        yield "demo"


@pytest.fixture
def command(request: pytest.FixtureRequest, command_with: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    """Calls the command in a folder with `models.py`, the text MODELS of the test's module."""
    return command_with(request.module.MODELS)
