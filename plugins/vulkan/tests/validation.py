"""Vulkan's validation layer: any message about the runtime's use of a driver fails a test.

Debian: apt-get install vulkan-validationlayers. If it is not installed, there are no messages.
"""

from __future__ import annotations

import os
from typing import Any, Final

_LAYER: Final = "VK_LAYER_KHRONOS_validation"
_EXTENSION: Final = "VK_EXT_debug_utils"
#: Enables the layer's search for missing barriers, too.
_ENABLES: Final = "VK_LAYER_ENABLES"
_SYNCHRONIZATION: Final = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"

#: The layer's messages in this process, oldest first.
messages: Final[list[str]] = []
#: The binding keeps no reference to the callback.
_kept: Final[list[Any]] = []


def watch() -> None:
    """Enable the layer for the instances that this process makes from now on."""
    try:
        import vulkan as vk
    except (ImportError, OSError):
        return
    if _LAYER not in {item.layerName for item in vk.vkEnumerateInstanceLayerProperties()}:
        return
    os.environ.setdefault(_ENABLES, _SYNCHRONIZATION)
    described, create = vk.VkInstanceCreateInfo, vk.vkCreateInstance

    def watched(ppEnabledExtensionNames: list[str], **fields: Any) -> Any:
        extensions = [*ppEnabledExtensionNames, _EXTENSION]
        return described(ppEnabledLayerNames=[_LAYER], ppEnabledExtensionNames=extensions, **fields)

    def created(info: Any, allocator: Any) -> Any:
        made = create(info, allocator)
        _listen(vk, made)
        return made

    vk.VkInstanceCreateInfo, vk.vkCreateInstance = watched, created


def _listen(vk: Any, instance: Any) -> None:
    """Collect the layer's messages about an instance."""

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
