"""Data on the device between calls: constants, which handles share, and the state of each handle."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from delegatekit_toolkit.content import storage_key

from ..ir.graph import Graph, Tensor
from .device import Buffer, Device, Submission
from .memory import WORD, Block
from .transfer import constant_array, words_of

#: Words (uint32), and their offset in bytes.
_Part: TypeAlias = "tuple[int, np.ndarray[Any, Any]]"


class Constants:
    """The constants of a delegate on the device, uploaded once, for all sizes and all handles of the same file.

    `share` returns the same object for the same memory of a file; each user of it finally calls `release`.
    """

    def __init__(self, device: Device) -> None:
        self._device: Final = device
        self._places: dict[Block, tuple[Buffer, int]] = {}
        self._users = 0
        #: Guards `blocks` and the uploads: handles may be made in several threads.
        self.lock: Final = threading.RLock()
        #: The tapes' key of a constant -> block.
        self.blocks: Final[dict[Hashable, Block]] = {}

    @staticmethod
    def share(device: Device, graph: Graph) -> Constants:
        """The constants of a graph. Memory addresses stay valid as long as a handle that uses them lives."""
        key = (id(device), frozenset(storage_key(item.data) for item in graph.constants() if item.data is not None))
        with _sharing:
            found = _shared.setdefault(key, Constants(device))
            found._users += 1
            return found

    def release(self) -> None:
        """Remove one user; the last one frees the memory."""
        with _sharing:
            self._users -= 1
            if self._users:
                return
            for key in [key for key, item in _shared.items() if item is self]:
                del _shared[key]
        for buffer in dict.fromkeys(buffer for buffer, _ in self._places.values()):
            buffer.close()
        self._places = {}

    def place(self, blocks: Iterable[Block]) -> None:
        """Upload those that are not on the device yet."""
        missing = [block for block in dict.fromkeys(blocks) if block.content is not None and block not in self._places]
        if not missing:
            return
        offsets, size = _laid_out(missing, self._device)
        buffer = Buffer(self._device, size, host=False)
        parts = ((offset, block.content()) for block, offset in offsets.items() if block.content is not None)
        write_words(self._device, buffer, parts)
        self._places.update({block: (buffer, offset) for block, offset in offsets.items()})

    def where(self, block: Block) -> tuple[Buffer, int]:
        """The buffer of a block, and the offset in it."""
        return self._places[block]


_shared: Final[dict[Hashable, Constants]] = {}
_sharing: Final = threading.Lock()


class States:
    """The tensors that one handle keeps from call to call, in memory that all its recordings use."""

    def __init__(self, device: Device, kept: Mapping[Tensor, Tensor]) -> None:
        """`kept`: tensor -> the constant with its first value. Raises ExecutionError if there is no memory for them."""
        self._device: Final = device
        #: Tensor -> its memory.
        self.blocks: Final = lasting_blocks(kept)
        self._offsets, size = _laid_out(self.blocks.values(), device)
        self._buffer: Final = Buffer(device, size, host=False) if kept else None
        if self._buffer is None:
            return
        try:
            places = (self._offsets[block] for block in self.blocks.values())
            write_words(device, self._buffer, zip(places, map(_first_words, kept.values()), strict=True))
        except BaseException:
            self.close()
            raise

    def where(self, block: Block) -> tuple[Buffer, int]:
        """The buffer of a block, and the offset in it."""
        assert self._buffer is not None
        return self._buffer, self._offsets[block]

    def close(self) -> None:
        """Free the memory; calling twice is harmless."""
        if self._buffer is not None:
            self._buffer.close()


def lasting_blocks(kept: Iterable[Tensor]) -> dict[Tensor, Block]:
    """Memory for tensors that are kept from call to call."""
    return {tensor: Block(math.prod(tensor.sizes), lasting=True) for tensor in kept}


def _first_words(source: Tensor) -> np.ndarray[Any, Any]:
    assert source.data is not None
    return words_of(constant_array(source.data))


def _laid_out(blocks: Iterable[Block], device: Device) -> tuple[dict[Block, int], int]:
    """An offset for each block, one after the other, and the bytes of all."""
    offsets, size = {}, 0
    for block in blocks:
        offsets[block] = size
        size = aligned(size + block.bytes, device.physical.alignment)
    return offsets, size


# -- between the host and memory of the device -------------------------------------------------------------------------


def write_words(device: Device, buffer: Buffer, parts: Iterable[_Part]) -> None:
    """Write some parts of a buffer; the bytes between them may change. Raises ExecutionError."""
    if buffer.view is not None:
        _fill(buffer.view, parts)
        return
    staging = Buffer(device, buffer.size, host=True)
    try:
        assert staging.view is not None
        _fill(staging.view, parts)
        _copy_now(device, staging, buffer)
    finally:
        staging.close()


def _words(view: memoryview) -> np.ndarray[Any, Any]:
    words: np.ndarray[Any, Any] = np.frombuffer(view, dtype=np.uint32)
    return words


def _fill(view: memoryview, parts: Iterable[_Part]) -> None:
    words = _words(view)
    for offset, content in parts:
        words[offset // WORD : offset // WORD + content.size] = content


def _copy_now(device: Device, source: Buffer, target: Buffer) -> None:
    """Copy a whole buffer to another one of its size, and wait."""
    vk, size = device.vk, source.size
    info = vk.VkCommandPoolCreateInfo(queueFamilyIndex=device.physical.family)
    pool = vk.vkCreateCommandPool(device.handle, info, None)
    submission = None
    try:
        info = vk.VkCommandBufferAllocateInfo(
            commandPool=pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        commands = vk.vkAllocateCommandBuffers(device.handle, info)
        vk.vkBeginCommandBuffer(commands[0], vk.VkCommandBufferBeginInfo())
        vk.vkCmdCopyBuffer(commands[0], source.handle, target.handle, 1, [vk.VkBufferCopy(size=size)])
        vk.vkEndCommandBuffer(commands[0])
        submission = Submission(device, commands[0])
        device.run(submission)
    finally:
        if submission is not None:
            submission.close()
        vk.vkDestroyCommandPool(device.handle, pool, None)


def aligned(offset: int, alignment: int) -> int:
    """The next multiple.

    >>> aligned(17, 16)
    32
    """
    return -(-offset // alignment) * alignment
