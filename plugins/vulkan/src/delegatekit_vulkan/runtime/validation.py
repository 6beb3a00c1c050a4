"""Vulkan's validation layer: what it says of our use of a driver becomes an error. For tests, and for new drivers."""

from __future__ import annotations

import os
from typing import Any, Final

#: Set to anything to have the layer watch (Debian: apt-get install vulkan-validationlayers).
VALIDATE: Final = "DELEGATEKIT_VULKAN_VALIDATE"
_LAYER: Final = "VK_LAYER_KHRONOS_validation"
_EXTENSION: Final = "VK_EXT_debug_utils"
#: Has the layer look for missing barriers, too.
_ENABLES: Final = "VK_LAYER_ENABLES"
_SYNCHRONIZATION: Final = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"

#: What the layer has said in this process, oldest first.
messages: Final[list[str]] = []
#: The binding keeps no reference to the function that it calls.
_kept: Final[list[Any]] = []


def wanted() -> bool:
    """Whether the environment asks for the layer."""
    return bool(os.environ.get(VALIDATE))


def layers(vk: Any) -> tuple[list[str], list[str]]:
    """The layers and extensions to make an instance with: none where they are not wanted or not installed."""
    if not wanted():
        return [], []
    os.environ.setdefault(_ENABLES, _SYNCHRONIZATION)
    if _LAYER not in {item.layerName for item in vk.vkEnumerateInstanceLayerProperties()}:
        messages.append(f"{VALIDATE} is set, but {_LAYER} is not installed: apt-get install vulkan-validationlayers")
        return [], []
    return [_LAYER], [_EXTENSION]


def listen(vk: Any, instance: Any) -> None:
    """Collect what the layer says of an instance."""

    def heard(severity: int, kind: int, data: Any, user: Any) -> int:
        messages.append(vk.ffi.string(data.pMessage).decode(errors="replace"))
        return 0

    info = vk.VkDebugUtilsMessengerCreateInfoEXT(
        messageSeverity=vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT
        | vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        messageType=vk.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        pfnUserCallback=heard,
    )
    create = vk.vkGetInstanceProcAddr(instance, "vkCreateDebugUtilsMessengerEXT")
    _kept.extend((heard, info, create(instance, info, None)))
