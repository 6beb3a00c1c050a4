"""The data shared by the methods of a file: constants, initial state, blobs, named data, and memory spaces."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch

from delegatekit_api import NamedData

from ..pte import schema
from .arena import MemoryOptions, Spaces
from .external import External, Outside


@dataclass(frozen=True)
class FileOptions:
    """The user's options of the file.

    `external` chooses the constants and named data that go into data files beside the .pte. With `stack_traces` the
    file stores for each instruction the user's source line. `memory` has the options of memory planning.
    """

    external: External = False
    stack_traces: bool = False
    memory: MemoryOptions = field(default_factory=MemoryOptions)


class Shared:
    """The data collected while the methods are written, one after the other."""

    def __init__(self, options: FileOptions) -> None:
        self.stack_traces = options.stack_traces
        self.outside = Outside(options.external)
        self.spaces = Spaces(options.memory)
        self.constants: list[torch.Tensor] = []
        self.mutable_state: list[torch.Tensor] = []
        self.blobs: list[Sequence[bytes | bytearray | memoryview]] = []
        self.named_data: list[NamedData] = []
        self._index: dict[Hashable, int] = {}

    def place(self, table: schema.Tensor, tensor: torch.Tensor, name: str | None) -> None:
        """Put a constant into the file, or under a key into a data file, and note in its table where it is.

        Data_buffer_idx is counted from 1; the same storage gives the same number.
        """
        if not self.outside.place(table, tensor, name):
            table.data_buffer_idx = self._number(self.constants, tensor, "constant")

    def state(self, tensor: torch.Tensor) -> int:
        """The data_buffer_idx of a mutable buffer's initial value."""
        return self._number(self.mutable_state, tensor, "state")

    def _number(self, tensors: list[torch.Tensor], tensor: torch.Tensor, kind: str) -> int:
        key = (kind, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if key not in self._index or tensor.numel() == 0:
            tensors.append(tensor)
            self._index[key] = len(tensors)
        return self._index[key]
