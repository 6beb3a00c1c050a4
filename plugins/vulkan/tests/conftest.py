"""What the tests of the Vulkan backend share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Before the process's only Vulkan instance is made: the validation layer watches every test.
os.environ.setdefault("DELEGATEKIT_VULKAN_VALIDATE", "1")

from delegatekit_vulkan.runtime import VulkanRuntime, validation


@pytest.fixture(autouse=True)
def needs_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked `needs_device` run on the device that DELEGATEKIT_VULKAN_DEVICE chooses, or are skipped.

    Whatever the validation layer says of a test is its failure.
    """
    if request.node.get_closest_marker("needs_device") is not None:
        available = VulkanRuntime().is_available()
        if not available.available:
            pytest.skip(available.reason)
    before = len(validation.messages)
    yield
    said = [text for text in validation.messages[before:] if not text.startswith(validation.VALIDATE)]
    assert not said, said[0]
