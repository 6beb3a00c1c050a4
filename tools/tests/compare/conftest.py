"""Fixtures of the comparison's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crooked import PLUGIN, Faulty


@pytest.fixture
def faulty(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """Injects a fault into the backend "crooked"."""
    install_plugin("crooked", PLUGIN)
    return lambda fault: monkeypatch.setenv("CROOKED", fault)


@pytest.fixture
def coarse(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """The same; the backend computes in float16."""
    monkeypatch.setenv("CROOKED_PRECISION", "float16")
    install_plugin("crooked", PLUGIN)
    return lambda fault: monkeypatch.setenv("CROOKED", fault)
