"""Pieces of planned memory, and their lifetimes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..pte import schema

#: A step after all others: the lifetime of values that outlive the method.
FOREVER: Final = 1 << 62


@dataclass(eq=False)
class Storage:
    """One planned piece of memory and its lifetime; views of a value share it.

    `first` is the step that writes it: 0 for inputs and buffers, else the number of the instruction, counted from 1.
    `last` is the last step that needs it. After `Reuse.apply`, `within` is the memory that contains it, `shift` bytes
    after its start.
    """

    size: int
    first: int
    last: int
    tensors: list[schema.Tensor]
    #: The node or buffer that it is made for.
    name: str = ""
    reads: list[int] = field(default_factory=list)
    #: True if instructions write it again after its first step: buffers, and results of control flow.
    rewritten: bool = False
    #: True if it is a buffer that keeps its content from call to call.
    state: bool = False
    within: Storage | None = None
    shift: int = 0

    def root(self) -> tuple[Storage, int]:
        """The outermost memory that contains it, and the offset there."""
        storage, offset = self, 0
        while storage.within is not None:
            offset += storage.shift
            storage = storage.within
        return storage, offset

    def put_into(self, other: Storage, shift: int = 0) -> None:
        """Put this root into another root."""
        self.within, self.shift = other, shift
        other.first, other.last = min(self.first, other.first), max(self.last, other.last)
