"""A tape on a device: memory for its blocks, and one command buffer that is recorded once and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .binding import failed
from .device import Buffer, Device, Submission
from .memory import Block, Value
from .planning import Hazards, check_size, plan
from .resident import Constants, States
from .tape import Tape


class Recording:
    """The commands of a tape, ready to run."""

    def __init__(
        self,
        device: Device,
        tape: Tape,
        constants: Constants,
        states: States,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        *,
        timed: bool,
    ) -> None:
        """With `timed`, `seconds` has the time of each dispatch after a run."""
        self._timed: Final = timed
        self._dispatches: Final = len(tape.dispatches)
        self._device: Final = device
        self._constants: Final = constants
        self._states: Final = states
        faults = () if tape.may_fail is None else (tape.may_fail,)
        # The host fills them before a run, and reads them after it.
        self._inputs: Final = (*inputs, *faults)
        self._outputs: Final = (*outputs, *faults)
        for item in tape.dispatches:
            for block in item.buffers:
                check_size(block, device)
        constants.place(block for item in tape.dispatches for block in item.buffers)
        constants.place(value.block for value in outputs)
        self._offsets, size = plan(tape, self._inputs, self._outputs, device.physical.alignment)
        self._arena: Final = Buffer(device, size, host=False)
        self._staging: Final = None if self._arena.view is not None else Buffer(device, size, host=True)
        self._pools: list[Any] = []
        vk = device.vk
        try:
            self._record(tape)
            self._submission: Final = Submission(device, self._commands)
        except vk.VkError as error:
            self.close()
            raise failed(error, "recording") from None
        except BaseException:
            self.close()
            raise
        self._input_words = [self._words(value) for value in inputs]
        self._output_words = [self._words(value) for value in outputs]
        self._fault_words = [self._words(value) for value in faults]

    # -- running -------------------------------------------------------------------------------------------------------

    def input_words(self, index: int) -> np.ndarray[Any, Any]:
        """The host's mapping of an input."""
        return self._input_words[index]

    def output_words(self, index: int) -> np.ndarray[Any, Any]:
        """The host's mapping of an output after `run`."""
        return self._output_words[index]

    def run(self) -> None:
        """Execute. Raises ExecutionError."""
        for words in self._fault_words:
            words[0] = 0
        self._device.run(self._submission)

    @property
    def fault(self) -> int | None:
        """The position of a call of the graph that found an index out of range in the last run."""
        return next((int(words[0]) - 1 for words in self._fault_words if words[0]), None)

    def seconds(self) -> list[float]:
        """The time of each dispatch in the last run, on the device, in seconds. Only of a `timed` recording."""
        vk, count = self._device.vk, self._dispatches + 1
        stamps = np.zeros(count, dtype=np.uint64)
        data = vk.ffi.from_buffer(stamps)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        vk.vkGetQueryPoolResults(self._device.handle, self._queries, 0, count, stamps.nbytes, data, 8, flags)
        steps: list[float] = (np.diff(stamps).astype(np.float64) * self._device.physical.tick).tolist()
        return steps

    def _begin_times(self) -> None:
        if not self._timed:
            return
        vk, count = self._device.vk, self._dispatches + 1
        info = vk.VkQueryPoolCreateInfo(queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=count)
        self._queries = vk.vkCreateQueryPool(self._device.handle, info, None)
        self.keep(vk.vkDestroyQueryPool, self._queries)
        vk.vkCmdResetQueryPool(self._commands, self._queries, 0, count)
        self._stamp(0)

    def _stamp(self, index: int) -> None:
        vk = self._device.vk
        vk.vkCmdWriteTimestamp(self._commands, vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, self._queries, index)

    def close(self) -> None:
        """Free everything."""
        handle = self._device.handle
        for destroy, item in reversed(self._pools):
            destroy(handle, item, None)
        self._pools = []
        if hasattr(self, "_submission"):
            self._submission.close()
        # Views of memory that is freed.
        self._input_words, self._output_words, self._fault_words = [], [], []
        self._arena.close()
        if self._staging is not None:
            self._staging.close()

    def _words(self, value: Value) -> np.ndarray[Any, Any]:
        if value.block.content is not None:  # an output that is a constant
            return value.block.content()
        buffer = self._staging or self._arena
        offset = self._offsets[value.block]
        assert buffer.view is not None
        return np.frombuffer(buffer.view, dtype=np.uint32, count=value.count, offset=offset)

    # -- recording -----------------------------------------------------------------------------------------------------

    def _record(self, tape: Tape) -> None:
        device, vk = self._device, self._device.vk
        info = vk.VkCommandPoolCreateInfo(queueFamilyIndex=device.physical.family)
        pool = vk.vkCreateCommandPool(device.handle, info, None)
        self._pools.append((vk.vkDestroyCommandPool, pool))
        info = vk.VkCommandBufferAllocateInfo(
            commandPool=pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        self._commands = vk.vkAllocateCommandBuffers(device.handle, info)[0]
        sets = _Sets(self, tape)
        vk.vkBeginCommandBuffer(self._commands, vk.VkCommandBufferBeginInfo())
        self._copy(self._staging, self._arena, self._inputs)
        self._begin_times()
        if self._states.blocks:
            self._barrier()  # writes of the call before
        hazards = Hazards(self.place)
        bound = None
        for index, item in enumerate(tape.dispatches):
            if hazards.next(item.buffers, item.written) or self._timed:
                self._barrier()
            pipeline = device.pipeline(item.shader, item.constants, len(item.buffers))
            if bound is not pipeline:
                vk.vkCmdBindPipeline(self._commands, vk.VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle)
                bound = pipeline
            vk.vkCmdBindDescriptorSets(
                self._commands,
                vk.VK_PIPELINE_BIND_POINT_COMPUTE,
                pipeline.layout,
                0,
                1,
                [sets.take(item.buffers, pipeline)],
                0,
                None,
            )
            data = vk.ffi.from_buffer(item.push)
            vk.vkCmdPushConstants(
                self._commands, pipeline.layout, vk.VK_SHADER_STAGE_COMPUTE_BIT, 0, len(item.push), data
            )
            vk.vkCmdDispatch(self._commands, *item.groups)
            if self._timed:
                self._stamp(index + 1)
        self._copy(self._arena, self._staging, self._outputs)
        self._barrier(to_host=True)
        vk.vkEndCommandBuffer(self._commands)

    def place(self, block: Block) -> tuple[Buffer, int]:
        """The buffer of a block, and the offset in it."""
        if block.content is not None:
            return self._constants.where(block)
        if block.lasting:
            return self._states.where(block)
        return self._arena, self._offsets[block]

    def _copy(self, source: Buffer | None, target: Buffer | None, values: Sequence[Value]) -> None:
        """Copy between the host's memory and the device's own, if they differ."""
        if source is None or target is None:
            return
        vk = self._device.vk
        self._barrier()
        for value in values:
            if value.block.is_computed:
                offset = self._offsets[value.block]
                region = vk.VkBufferCopy(srcOffset=offset, dstOffset=offset, size=value.block.bytes)
                vk.vkCmdCopyBuffer(self._commands, source.handle, target.handle, 1, [region])
        self._barrier()

    def _barrier(self, *, to_host: bool = False) -> None:
        vk = self._device.vk
        shader = vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT
        transfer = vk.VK_ACCESS_TRANSFER_READ_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT
        stages = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        if self._staging is not None or to_host:
            stages |= vk.VK_PIPELINE_STAGE_TRANSFER_BIT
            shader |= transfer
        barrier = vk.VkMemoryBarrier(
            srcAccessMask=shader, dstAccessMask=vk.VK_ACCESS_HOST_READ_BIT if to_host else shader
        )
        after = vk.VK_PIPELINE_STAGE_HOST_BIT if to_host else stages
        vk.vkCmdPipelineBarrier(self._commands, stages, after, 0, 1, [barrier], 0, None, 0, None)

    def keep(self, destroy: Any, item: Any) -> None:
        """Destroy something with the recording."""
        self._pools.append((destroy, item))


class _Sets:
    """Descriptor sets: the part of a buffer for each binding of a dispatch. Equal ones are made once."""

    def __init__(self, recording: Recording, tape: Tape) -> None:
        self._recording = recording
        self._device = recording._device
        self._made: dict[tuple[Block, ...], Any] = {}
        vk = self._device.vk
        distinct = {item.buffers for item in tape.dispatches}
        if not distinct:
            return
        size = vk.VkDescriptorPoolSize(
            type=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptorCount=sum(map(len, distinct))
        )
        sizes = [size]
        info = vk.VkDescriptorPoolCreateInfo(maxSets=len(distinct), pPoolSizes=sizes)
        self._pool = vk.vkCreateDescriptorPool(self._device.handle, info, None)
        recording.keep(vk.vkDestroyDescriptorPool, self._pool)

    def take(self, blocks: tuple[Block, ...], pipeline: Any) -> Any:
        """The set for these blocks."""
        if blocks not in self._made:
            self._made[blocks] = self._make(blocks, pipeline)
        return self._made[blocks]

    def _make(self, blocks: tuple[Block, ...], pipeline: Any) -> Any:
        vk, device = self._device.vk, self._device
        layouts = [pipeline.sets]
        info = vk.VkDescriptorSetAllocateInfo(descriptorPool=self._pool, pSetLayouts=layouts)
        made = vk.vkAllocateDescriptorSets(device.handle, info)[0]
        held = []
        for index, block in enumerate(blocks):
            buffer, offset = self._recording.place(block)
            part = vk.VkDescriptorBufferInfo(buffer=buffer.handle, offset=offset, range=block.bytes)
            parts = [part]
            write = vk.VkWriteDescriptorSet(
                dstSet=made,
                dstBinding=index,
                descriptorCount=1,
                descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                pBufferInfo=parts,
            )
            held.append((part, parts, write))
        writes = [write for _, _, write in held]
        vk.vkUpdateDescriptorSets(device.handle, len(writes), writes, 0, None)
        return made
