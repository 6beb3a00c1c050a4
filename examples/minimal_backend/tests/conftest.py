"""Makes the backend findable for its tests, whether or not it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def installed(from_source: Any) -> Iterator[None]:
    """The backend counts as installed while the tests of a module run."""
    with from_source(Path(__file__).parents[1]):
        yield
