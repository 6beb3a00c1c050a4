"""Shared fixtures of the TOSA tests: the example's graph and its file."""

from __future__ import annotations

import pytest

from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa.example import small_network


@pytest.fixture
def small_graph() -> tosa.Graph:
    """A small int8 network; its tensors' names are those of its layers."""
    return small_network()


@pytest.fixture(scope="session")
def small_program() -> bytes:
    """The file of `small_graph`."""
    return tosa.write(small_network())
