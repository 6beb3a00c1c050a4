"""The binding to the system's Vulkan loader, and the devices that it finds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from delegatekit_api import ExecutionError, RuntimeUnavailableError

WHERE: Final = "VulkanBackend"
#: Selects the device: its position in the order of preference, or a part of its name. Anything else lists the devices.
CHOICE: Final = "DELEGATEKIT_VULKAN_DEVICE"
_LOADER: Final = "apt-get install libvulkan1 (Debian), or the driver of the graphics card"
_DRIVER: Final = "install the driver of the graphics card; apt-get install mesa-vulkan-drivers has one for CPUs"
_EXTRA: Final = "pip install 'delegatekit-vulkan[runtime]'"
#: Vulkan 1.1.
_VERSION: Final = (1 << 22) | (1 << 12)
#: VkPhysicalDeviceType -> position in the order of preference, and name: drivers on CPUs come last.
_TYPES: Final = {2: (0, "discrete"), 1: (1, "integrated"), 3: (2, "virtual"), 0: (3, "other"), 4: (4, "cpu")}


@dataclass(frozen=True)
class PhysicalDevice:
    """A device with a compute queue, as the driver describes it."""

    handle: Any
    name: str
    #: "discrete", "integrated", "virtual", "other" or "cpu".
    kind: str
    vendor: int
    device: int
    driver: int
    api: tuple[int, int]
    #: Index of the first queue family that supports compute.
    family: int
    #: Alignment of buffer bindings in bytes.
    alignment: int
    #: Maximum size in bytes of a buffer binding.
    most_bytes: int
    #: Period of the device's clock in seconds; 0 if it has none.
    tick: float

    @property
    def rank(self) -> int:
        """Position in the order of preference: the smallest is chosen."""
        return next(place for place, name in _TYPES.values() if name == self.kind)

    @property
    def identity(self) -> str:
        """Distinguishes driver versions."""
        return f"{self.vendor:x}-{self.device:x}-{self.driver:x}"


@cache
def vulkan() -> Any:
    """The module of the binding. Raises RuntimeUnavailableError if it, or the loader, is missing."""
    try:
        import vulkan as found
    except ImportError as error:
        raise RuntimeUnavailableError(f"the binding is missing ({error}): {_EXTRA}", where=WHERE) from None
    except OSError:
        raise RuntimeUnavailableError(f"this system has no Vulkan loader: {_LOADER}", where=WHERE) from None
    if not hasattr(found, "vkCreateInstance"):
        raise RuntimeUnavailableError(f"{found.__file__} is another module with the binding's name", where=WHERE)
    return found


@cache
def instance() -> Any:
    """The process's Vulkan instance. Raises RuntimeUnavailableError if there is no driver."""
    vk = vulkan()
    # The structures refer to each other's memory: all must live until the call has returned.
    application = vk.VkApplicationInfo(pApplicationName="delegatekit", apiVersion=_VERSION)
    flags, extensions = _portability(vk)
    info = vk.VkInstanceCreateInfo(pApplicationInfo=application, flags=flags, ppEnabledExtensionNames=extensions)
    try:
        return vk.vkCreateInstance(info, None)
    except vk.VkErrorIncompatibleDriver:
        raise RuntimeUnavailableError(f"no Vulkan driver is installed: {_DRIVER}", where=WHERE) from None
    except vk.VkError as error:
        raise RuntimeUnavailableError(f"no Vulkan instance: {error_name(error)}", where=WHERE) from None


def _portability(vk: Any) -> tuple[int, list[str]]:
    """On macOS, drivers that implement only a subset of Vulkan must be requested explicitly."""
    name = "VK_KHR_portability_enumeration"
    known = {item.extensionName for item in vk.vkEnumerateInstanceExtensionProperties(None)}
    return (1, [name]) if name in known else (0, [])


@cache
def devices() -> tuple[PhysicalDevice, ...]:
    """The devices that support compute with Vulkan 1.1, the preferred one first."""
    vk = vulkan()
    found = []
    try:
        handles = vk.vkEnumeratePhysicalDevices(instance())
    except vk.VkError:
        handles = []
    for handle in handles:
        properties = vk.vkGetPhysicalDeviceProperties(handle)
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(handle)
        family = next((i for i, item in enumerate(families) if item.queueFlags & vk.VK_QUEUE_COMPUTE_BIT), None)
        if family is None or properties.apiVersion < _VERSION:
            continue
        api = (properties.apiVersion >> 22, properties.apiVersion >> 12 & 0x3FF)
        kind = _TYPES.get(properties.deviceType, _TYPES[0])[1]
        found.append(
            PhysicalDevice(
                handle,
                str(properties.deviceName),
                kind,
                properties.vendorID,
                properties.deviceID,
                properties.driverVersion,
                api,
                family,
                # Copied: the limits are in the structure of properties, which does not outlive this loop.
                max(int(properties.limits.minStorageBufferOffsetAlignment), 16),
                int(properties.limits.maxStorageBufferRange),
                float(properties.limits.timestampPeriod) * 1e-9 if families[family].timestampValidBits else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda device: device.rank))


def chosen_device() -> PhysicalDevice:
    """The device that blobs run on. Raises RuntimeUnavailableError if there is none, or not the requested one."""
    found = devices()
    if not found:
        raise RuntimeUnavailableError(f"no Vulkan 1.1 device was found: {_DRIVER}", where=WHERE)
    choice = os.environ.get(CHOICE, "")
    if not choice:
        return found[0]
    if choice.isdecimal() and int(choice) < len(found):
        return found[int(choice)]
    named = [device for device in found if choice.lower() in device.name.lower()]
    if named and not choice.isdecimal():
        return named[0]
    names = ", ".join(f"{index}: {device.name}" for index, device in enumerate(found))
    raise RuntimeUnavailableError(f"{CHOICE}={choice!r:.80} is none of the devices ({names})", where=WHERE)


def error_name(error: Exception) -> str:
    """Vulkan's name of an error: "VkErrorDeviceLost"."""
    return type(error).__name__


def failed(error: Exception, doing: str) -> ExecutionError:
    """Our error for one of Vulkan's."""
    hints = {
        "VkErrorDeviceLost": "the driver lost the device; the next load opens it again",
        "VkErrorOutOfDeviceMemory": "the device has too little free memory",
        "VkErrorOutOfHostMemory": "the host has too little free memory",
    }
    name = error_name(error)
    return ExecutionError(f"{doing} failed with {name}", where=WHERE, hint=hints.get(name))
