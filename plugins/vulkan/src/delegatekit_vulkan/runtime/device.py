"""A logical device: its queue, memory and pipelines. A process opens each device once, for all delegates."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final

from delegatekit_api import RuntimeUnavailableError

from ..shaders import bytecode
from .binding import WHERE, PhysicalDevice, chosen_device, failed, instance, vulkan
from .tape import PUSH_BYTES

#: Environment variable of the folder for Vulkan's cache of compiled pipelines; "off" keeps none (as for the core's).
_CACHE: Final = "DELEGATEKIT_CACHE"
#: Timeout of a call in nanoseconds: drivers on CPUs are slow, and a hang must not last for ever.
_PATIENCE: Final = 600 * 10**9


class Buffer:
    """A piece of the device's memory; `view` is its mapping on the host, if possible."""

    def __init__(self, device: Device, size: int, *, host: bool) -> None:
        """`host` requests memory that the host reads and writes; else the device's own, which the host may see, too."""
        vk, self._device, self.size = device.vk, device, max(size, 4)
        usage = (
            vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        )
        info = vk.VkBufferCreateInfo(size=self.size, usage=usage, sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
        self.handle: Any = None
        self._memory: Any = None
        self.view: memoryview | None = None
        try:
            self.handle = vk.vkCreateBuffer(device.handle, info, None)
            needs = vk.vkGetBufferMemoryRequirements(device.handle, self.handle)
            kind, visible = device.memory_type(needs.memoryTypeBits, host=host)
            allocation = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=kind)
            self._memory = vk.vkAllocateMemory(device.handle, allocation, None)
            vk.vkBindBufferMemory(device.handle, self.handle, self._memory, 0)
            if visible:
                self.view = memoryview(vk.vkMapMemory(device.handle, self._memory, 0, self.size, 0)).cast("B")
        except vk.VkError as error:
            self.close()
            raise failed(error, f"allocating {self.size} bytes") from None

    def close(self) -> None:
        """Free the memory; calling twice is harmless."""
        vk, device = self._device.vk, self._device.handle
        self.view = None
        if self.handle is not None:
            vk.vkDestroyBuffer(device, self.handle, None)
        if self._memory is not None:
            vk.vkFreeMemory(device, self._memory, None)
        self.handle = self._memory = None


class Pipeline:
    """A shader with its specialization constants, compiled by the driver."""

    def __init__(self, handle: Any, layout: Any, sets: Any) -> None:
        self.handle: Final = handle
        self.layout: Final = layout
        self.sets: Final = sets


class Submission:
    """Recorded commands with a fence, in the driver's form: the binding would convert lists in each call."""

    def __init__(self, device: Device, commands: Any) -> None:
        vk, self._device = device.vk, device
        self.fence: Final = vk.vkCreateFence(device.handle, vk.VkFenceCreateInfo(), None)
        self._buffers: Final = vk.ffi.new("VkCommandBuffer[]", [commands])
        self.infos: Final = vk.ffi.new("VkSubmitInfo[]", 1)
        self.infos[0].sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self.infos[0].commandBufferCount = 1
        self.infos[0].pCommandBuffers = self._buffers
        self.fences: Final = vk.ffi.new("VkFence[]", [self.fence])

    def close(self) -> None:
        """Destroy the fence."""
        self._device.vk.vkDestroyFence(self._device.handle, self.fence, None)


class Device:
    """A logical device with one queue. Submissions are serialized by `lock`."""

    def __init__(self, physical: PhysicalDevice) -> None:
        self.vk: Final = vulkan()
        self.physical: Final = physical
        self.lock: Final = threading.Lock()
        self.lost = False
        vk = self.vk
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=physical.family, queueCount=1, pQueuePriorities=[1.0])
        queues = [queue]
        features = vk.VkPhysicalDeviceFeatures()
        info = vk.VkDeviceCreateInfo(pQueueCreateInfos=queues, pEnabledFeatures=features, **_extensions(vk, physical))
        try:
            self.handle: Final = vk.vkCreateDevice(physical.handle, info, None)
            #: The process that opened it.
            self.process: Final = os.getpid()
        except vk.VkError as error:
            raise failed(error, f"opening {physical.name}") from None
        self.queue: Final = vk.vkGetDeviceQueue(self.handle, physical.family, 0)
        self._memory: Final = vk.vkGetPhysicalDeviceMemoryProperties(physical.handle)
        self._set_layouts: dict[int, tuple[Any, Any]] = {}
        self._modules: dict[str, Any] = {}
        self._pipelines: dict[tuple[str, tuple[int, ...]], Pipeline] = {}
        self._cache_path: Final = _cache_path(physical)
        self._cache: Final = self._open_cache()
        self._unsaved = 0

    # -- memory --------------------------------------------------------------------------------------------------------

    def memory_type(self, allowed: int, *, host: bool) -> tuple[int, bool]:
        """The kind of memory to allocate, and True if the host sees it."""
        vk, memory = self.vk, self._memory
        local = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        visible = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        shared = self.physical.kind in ("integrated", "cpu")
        if host:
            wishes = [visible | cached, visible]
        else:
            # Graphics cards map only a small part of their memory: there, copies go through a buffer of the host's.
            wishes = [local | visible | cached, local | visible, local, 0] if shared else [local, 0]
        for wish in wishes:
            for index in range(memory.memoryTypeCount):
                flags = memory.memoryTypes[index].propertyFlags
                if allowed >> index & 1 and flags & wish == wish:
                    return index, bool(flags & visible == visible) and (host or shared)
        raise failed(RuntimeError(), "finding memory of the required kind")

    # -- pipelines -----------------------------------------------------------------------------------------------------

    def pipeline(self, shader: str, constants: tuple[int, ...], buffers: int) -> Pipeline:
        """The compiled shader with these specialization constants (words) and this many buffers. Made once."""
        key = (shader, constants)
        with self.lock:
            found = self._pipelines.get(key)
            if found is None:
                found = self._pipelines[key] = self._make_pipeline(shader, constants, buffers)
                self._unsaved += 1
            return found

    def _make_pipeline(self, shader: str, constants: tuple[int, ...], buffers: int) -> Pipeline:
        vk = self.vk
        sets, layout = self._layouts(buffers)
        if shader not in self._modules:
            code = bytecode(shader)
            info = vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code)
            self._modules[shader] = vk.vkCreateShaderModule(self.handle, info, None)
        # The binding keeps no references: each structure is in a variable until the call has returned.
        entries = [vk.VkSpecializationMapEntry(constantID=i, offset=4 * i, size=4) for i in range(len(constants))]
        data = vk.ffi.new("uint32_t[]", constants)
        special = vk.VkSpecializationInfo(
            mapEntryCount=len(entries), pMapEntries=entries, dataSize=4 * len(constants), pData=data
        )
        stage = vk.VkPipelineShaderStageCreateInfo(
            stage=vk.VK_SHADER_STAGE_COMPUTE_BIT,
            module=self._modules[shader],
            pName="main",
            pSpecializationInfo=special,
        )
        info = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout)
        infos = [info]
        try:
            made = vk.vkCreateComputePipelines(self.handle, self._cache, 1, infos, None)
        except vk.VkError as error:
            raise failed(error, f"compiling the shader {shader}") from None
        return Pipeline(made[0] if hasattr(made, "__len__") else made, layout, sets)

    def _layouts(self, buffers: int) -> tuple[Any, Any]:
        """The layouts of descriptor set and pipeline for shaders with this many buffers."""
        if buffers not in self._set_layouts:
            vk = self.vk
            bindings = [
                vk.VkDescriptorSetLayoutBinding(
                    binding=index,
                    descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                    descriptorCount=1,
                    stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                )
                for index in range(buffers)
            ]
            info = vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings)
            sets = vk.vkCreateDescriptorSetLayout(self.handle, info, None)
            push = vk.VkPushConstantRange(stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=PUSH_BYTES)
            pushes, layouts = [push], [sets]
            info = vk.VkPipelineLayoutCreateInfo(pSetLayouts=layouts, pPushConstantRanges=pushes)
            self._set_layouts[buffers] = sets, vk.vkCreatePipelineLayout(self.handle, info, None)
        return self._set_layouts[buffers]

    def _open_cache(self) -> Any:
        vk, data = self.vk, b""
        if self._cache_path is not None:
            try:
                data = self._cache_path.read_bytes()
            except OSError:
                data = b""
        held = vk.ffi.from_buffer(data) if data else None
        info = vk.VkPipelineCacheCreateInfo(initialDataSize=len(data), pInitialData=held)
        try:
            return vk.vkCreatePipelineCache(self.handle, info, None)
        except vk.VkError:
            return None

    def save_cache(self) -> None:
        """Write the cache of compiled pipelines for later processes, if there are new ones. A full disk is no error."""
        with self.lock:
            if self._cache_path is None or self._cache is None or not self._unsaved:
                return
            self._unsaved = 0
            try:
                data = self._cache_data()
                self._cache_path.parent.mkdir(parents=True, exist_ok=True)
                hidden = self._cache_path.with_name(f".{self._cache_path.name}.{os.getpid()}")
                hidden.write_bytes(data)
                hidden.replace(self._cache_path)
            except (OSError, self.vk.VkError):
                return

    def _cache_data(self) -> bytes:
        """Vulkan's data of the compiled pipelines (the binding has no function for it, only the C declaration)."""
        ffi, get = self.vk.ffi, self.vk.lib.vkGetPipelineCacheData
        size = ffi.new("size_t *")
        if get(self.handle, self._cache, size, ffi.NULL):
            return b""
        data = ffi.new("char[]", size[0])
        return b"" if get(self.handle, self._cache, size, data) else bytes(ffi.buffer(data, size[0]))

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, submission: Submission) -> None:
        """Submit recorded commands and wait for them. Raises ExecutionError."""
        _check_process(self)
        vk, fences = self.vk, submission.fences
        with self.lock:
            try:
                vk.vkQueueSubmit(self.queue, 1, submission.infos, submission.fence)
                vk.vkWaitForFences(self.handle, 1, fences, True, _PATIENCE)
                vk.vkResetFences(self.handle, 1, fences)
            except vk.VkError as error:
                self.lost = True
                raise failed(error, "running on the device") from None
            except vk.VkException as error:  # VK_TIMEOUT
                self.lost = True
                raise failed(error, "waiting for the device") from None


def _extensions(vk: Any, physical: PhysicalDevice) -> dict[str, Any]:
    """The extensions that a driver with a subset of Vulkan must be given."""
    name = "VK_KHR_portability_subset"
    known = {item.extensionName for item in vk.vkEnumerateDeviceExtensionProperties(physical.handle, None)}
    return {"ppEnabledExtensionNames": [name]} if name in known else {}


def _cache_path(physical: PhysicalDevice) -> Path | None:
    setting = os.environ.get(_CACHE, "")
    if setting == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(setting) if setting else Path(base).expanduser() / "delegatekit"
    return folder / f"vulkan-{physical.identity}.bin"


def _check_process(device: Device | None) -> None:
    """Refuse a fork of the process that opened a device: it lacks the driver's threads, and would hang."""
    if device is not None and device.process != os.getpid():
        raise RuntimeUnavailableError(
            "Vulkan was used by the process that this one was forked from: drivers do not work in a fork",
            where=WHERE,
            hint="start processes with spawn or forkserver, or fork before the first use",
        )


_open: dict[Any, Device] = {}
_open_lock = threading.Lock()


def open_device() -> Device:
    """The chosen device, opened once in a process, and again after it was lost. Raises RuntimeUnavailableError."""
    _check_process(next(iter(_open.values()), None))
    instance()
    physical = chosen_device()
    with _open_lock:
        found = _open.get(physical.handle)
        if found is None or found.lost:
            found = _open[physical.handle] = Device(physical)
        return found
