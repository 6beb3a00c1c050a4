"""What VGF files run on: there is one form of them for all devices."""

from __future__ import annotations

from delegatekit_api.devices import TargetInfo


def list_targets() -> tuple[TargetInfo, ...]:
    """The one form."""
    return (TargetInfo("vulkan", "Devices with Vulkan's extensions VK_ARM_tensors and VK_ARM_data_graph", {}, {}),)
