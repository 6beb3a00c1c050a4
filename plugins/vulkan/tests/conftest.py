"""What the tests of the Vulkan backend share."""

from __future__ import annotations

import pytest

from delegatekit_vulkan.runtime import VulkanRuntime


@pytest.fixture(autouse=True)
def needs_device(request: pytest.FixtureRequest) -> None:
    """Tests marked `needs_device` run on the device that DELEGATEKIT_VULKAN_DEVICE chooses, or are skipped."""
    if request.node.get_closest_marker("needs_device") is not None:
        available = VulkanRuntime().is_available()
        if not available.available:
            pytest.skip(available.reason)
