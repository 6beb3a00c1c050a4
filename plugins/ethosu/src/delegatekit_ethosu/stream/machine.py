"""An Ethos-U55 on the host: the operations of a command stream, executed one after the other on its memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from delegatekit_api import FormatError

from .commands import Configuration, decode
from .convolution import Floats, convolve
from .elementwise import elementwise
from .memory import Bytes, Memory
from .operations import Convolution, Copy, Elementwise, Operation, Pool
from .plan import plan
from .pooling import pool
from .weights import decode_weights


class Machine:
    """A decoded program. It keeps the weights that it has decompressed: a second run takes them from there."""

    configuration: Configuration
    operations: tuple[Operation, ...]

    def __init__(self, command_stream: bytes | memoryview) -> None:
        """Decode a driver payload. Raises FormatError for what is no program of an Ethos-U55 or has unknown parts."""
        stream = decode(command_stream)
        self.configuration = stream.configuration
        self.operations = plan(stream)
        self._weights: dict[tuple[bytes, object], Floats] = {}

    def run(self, regions: Mapping[int, Bytes]) -> None:
        """Execute the program once on `regions`, in place: 0 is the read-only data, 1 the scratch memory.

        Raises FormatError for an access outside its region or weights that do not fit, and ExecutionError for a number
        that passes the NPU's accumulators or its output's type.
        """
        memory = Memory(regions, self.configuration.internal_memory)
        for operation in self.operations:
            self._execute(operation, memory)

    def _execute(self, operation: Operation, memory: Memory) -> None:
        if isinstance(operation, Convolution):
            convolve(operation, memory, self._decoded(operation, memory))
        elif isinstance(operation, Pool):
            pool(operation, memory)
        elif isinstance(operation, Elementwise):
            elementwise(operation, memory)
        else:
            _copy(operation, memory)

    def _decoded(self, operation: Convolution, memory: Memory) -> Floats:
        data = memory.bytes(operation.weights, operation.where)
        key = (data.tobytes(), operation.order)
        weights = self._weights.get(key)
        if weights is None:
            weights = decode_weights(data, operation.order, operation.where).astype(np.float64)
            self._weights[key] = weights
        return weights


def _copy(operation: Copy, memory: Memory) -> None:
    data = memory.bytes(operation.source, operation.where).copy()
    if operation.region is not None:
        memory.write(operation.region, operation.base, data, operation.where)
        return
    internal = memory.internal
    if operation.base + len(data) > len(internal):
        what = f"bytes {operation.base} to {operation.base + len(data)} are not inside the internal memory"
        raise FormatError(f"{what} ({len(internal)} bytes)", where=operation.where)
    internal[operation.base : operation.base + len(data)] = data
