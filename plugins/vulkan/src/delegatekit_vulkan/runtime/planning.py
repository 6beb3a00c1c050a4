"""Offsets of blocks in a recording's memory, and barriers between its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from delegatekit_api import ExecutionError

from .binding import WHERE
from .device import Buffer, Device
from .memory import Block, Value
from .resident import aligned
from .tape import Tape

#: A buffer, and the first byte and the end of a part of it.
Extent: TypeAlias = tuple[Buffer, int, int]


class Hazards:
    """Finds dispatches that need a barrier: they touch the same memory as those before, and one writes."""

    def __init__(self, place: Any) -> None:
        self._place = place
        self._read: list[Extent] = []
        self._written: list[Extent] = []

    def next(self, blocks: Sequence[Block], written: int) -> bool:
        """Go on to the next dispatch; True if it needs a barrier before it."""
        extents = [(block, block.content is None) for block in blocks]
        first_written = len(blocks) - written
        reads = [self._extent(block) for block, computed in extents[:first_written] if computed]
        writes = [self._extent(block) for block, computed in extents[first_written:] if computed]
        wait = _overlap(reads, self._written) or _overlap(writes, self._written) or _overlap(writes, self._read)
        if wait:
            self._read, self._written = [], []
        self._read += reads
        self._written += writes
        return wait

    def _extent(self, block: Block) -> Extent:
        buffer, offset = self._place(block)
        return buffer, offset, offset + block.bytes


def _overlap(left: list[Extent], right: list[Extent]) -> bool:
    return any(one is other and a < d and c < b for one, a, b in left for other, c, d in right)


def plan(tape: Tape, inputs: Sequence[Value], outputs: Sequence[Value], alignment: int) -> tuple[dict[Block, int], int]:
    """An offset in the arena for each computed block: blocks that are needed at the same time are disjoint.

    Inputs and outputs have memory of their own: the host fills them and reads them outside of the commands.
    """
    lives: dict[Block, list[int]] = {}
    for index, item in enumerate(tape.dispatches):
        for block in item.buffers:
            if block.is_computed:
                lives.setdefault(block, [index, index])[1] = index
    ends = len(tape.dispatches)
    for value in (*inputs, *outputs):
        if value.block.is_computed:
            lives[value.block] = [-1, ends]
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[Block, int] = {}
    size = 0
    # The largest first, each at the lowest offset that is free for its whole lifetime.
    for block, (first, last) in sorted(lives.items(), key=lambda item: (-item[0].bytes, item[1])):
        taken = sorted((a, b) for a, b, begin, end in placed if begin <= last and first <= end)
        offset = 0
        for start, stop in taken:
            if offset + block.bytes <= start:
                break
            offset = max(offset, aligned(stop, alignment))
        placed.append((offset, offset + block.bytes, first, last))
        offsets[block] = offset
        size = max(size, offset + block.bytes)
    return offsets, size


def check_size(block: Block, device: Device) -> None:
    """Refuse a block that a shader cannot bind as a whole, before memory is allocated."""
    most = device.physical.most_bytes
    if block.bytes > most:
        raise ExecutionError(
            f"a tensor has {block.bytes} bytes: {device.physical.name} shows a shader {most}", where=WHERE
        )
