"""The Vulkan partitioner's option for the storage of tensors changes nothing: all stay textures.

The pass that marks tensors keeps the default and ignores the option.
"""

from __future__ import annotations

import torch
from tools import vulkan_storages

PRODUCT = "ExecuTorch's Vulkan lowering"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/vulkan/src/delegatekit_vulkan/options.py: VulkanOptions.storage",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    from executorch.backends.vulkan.serialization.vulkan_graph_schema import VkStorageType

    found = vulkan_storages(torch.relu, torch.ones(1, 3, 4, 4), storage_type_override=VkStorageType.BUFFER)
    wanted = {int(VkStorageType.BUFFER)}
    return None if found == wanted else f"storages {sorted(found)} (textures), should be {sorted(wanted)} (buffers)"
