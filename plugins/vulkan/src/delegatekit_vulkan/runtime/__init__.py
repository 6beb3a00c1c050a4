"""Runs blobs on a Vulkan device of this machine."""

from .runtime import VulkanRuntime

__all__ = ["VulkanRuntime"]
