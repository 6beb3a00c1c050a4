"""The hooks: what core sees of the backend."""

from __future__ import annotations

from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_vulkan import plugin
from delegatekit_vulkan.options import VulkanOptions


class TestPlugin(PluginTests):
    backend, delegate_id, target_option = "vulkan", "VulkanBackend", "target"
    heavy = PluginTests.heavy | {"vulkan"}
    wrong_options = ({"target": "watch"}, {"storage": "disk"}, {"buffer_limit": -1}, {"leave_out": "nothing"})


def test_half_precision_lowers_the_precision() -> None:
    assert plugin.compute_precision(VulkanOptions()) == "float32"
    assert plugin.compute_precision(VulkanOptions(fp16=True)) == "float16"
