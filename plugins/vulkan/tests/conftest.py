"""Shared fixtures of the Vulkan backend's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from delegatekit_vulkan import compile as compiler
from delegatekit_vulkan.ir.graph import Graph, Node
from delegatekit_vulkan.runtime import VulkanRuntime

from . import validation

# Before the process's only Vulkan instance is made.
validation.watch()


@pytest.fixture(autouse=True)
def complete_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that every compiled graph has all operator arguments: the stock runtime finds results by position."""
    serialize = compiler.serialize

    def checked(graph: Graph) -> object:
        wrong = {node.operator for node in graph.nodes if len(node.arguments) != argument_count(node)}
        assert not wrong, f"calls of {sorted(wrong)} have fewer or more arguments than the operators' schemas"
        return serialize(graph)

    monkeypatch.setattr(compiler, "serialize", checked)


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The handles that runtimes make in a test, in order."""
    found: list[Any] = []
    init = VulkanRuntime.init

    def made(self: VulkanRuntime, payload: Any) -> Any:
        found.append(init(self, payload))
        return found[-1]

    monkeypatch.setattr(VulkanRuntime, "init", made)
    return found


def argument_count(node: Node) -> int:
    """The number of arguments that a call must have; for operators other than ATen's, the number that it has."""
    namespace, _, name = node.operator.partition(".")
    if namespace != "aten":
        return len(node.arguments)
    overload = getattr(getattr(torch.ops.aten, name.partition(".")[0]), name.partition(".")[2])
    return len(overload._schema.arguments)


@pytest.fixture(autouse=True)
def needs_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked `needs_device` run on the device that DELEGATEKIT_VULKAN_DEVICE chooses, or are skipped.

    Any message of the validation layer fails the test.
    """
    if request.node.get_closest_marker("needs_device") is not None:
        available = VulkanRuntime().is_available()
        if not available.available:
            pytest.skip(available.reason)
    before = len(validation.messages)
    yield
    said = validation.messages[before:]
    assert not said, said[0]
