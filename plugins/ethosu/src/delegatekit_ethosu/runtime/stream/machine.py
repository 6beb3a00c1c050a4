"""An Ethos-U55 on the host: executes the operations of a compiled program in order on its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delegatekit_api import ExecutionError

from ...blob import Binding, Blob
from .commands import Configuration, decode
from .convolution import Floats, convolve
from .elementwise import elementwise
from .errors import NotExecutableError
from .memory import READ_ONLY, SCRATCH, Bytes, Memory
from .operations import Convolution, Copy, Elementwise, FeatureMap, Operation, Pool, Range
from .plan import plan
from .pooling import pool
from .weights import decode_weights

#: Fill value of the scratch memory before a run. On the device nothing is cleared either.
_DIRT: Final = 0xA5
#: Maximum bytes of scratch memory for a program on the host: far more than any Ethos-U55 system has.
_MOST_SCRATCH: Final = 1 << 30
#: Element types of inputs and outputs by size. Signs are the caller's: the bytes are passed on.
_TYPES: Final = {1: np.int8, 2: np.int16, 4: np.int32}


class Machine:
    """A loaded program. Decompressed weights are kept for later runs."""

    configuration: Configuration
    operations: tuple[Operation, ...]

    def __init__(self, blob: Blob) -> None:
        """Decode the command stream.

        Raises FormatError for a damaged one or one that reads or writes outside its regions, and NotExecutableError for
        one that is for another NPU or has parts that are not executed here.
        """
        stream = decode(blob.command_stream)
        if blob.scratch_size > _MOST_SCRATCH:
            what = f"asks for {blob.scratch_size} bytes of scratch memory: the host gives {_MOST_SCRATCH}"
            raise NotExecutableError(what, where="block scratch_size")
        self.configuration = stream.configuration
        self.operations = plan(stream)
        self._blob = blob
        self._weights: dict[tuple[bytes, object], Floats] = {}
        memory = self._memory(np.empty(blob.scratch_size, np.uint8))
        for operation in self.operations:
            _check(operation, memory)

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Execute the program once: the outputs in the blob's order, signed, of the blob's six sizes.

        Raises ExecutionError for inputs of other sizes and for a number that overflows the NPU's accumulators or its
        output's type, and FormatError for weights that cannot be decompressed or do not match.
        """
        if len(inputs) != len(self._blob.inputs):
            raise ExecutionError(f"takes {len(self._blob.inputs)} inputs, got {len(inputs)}", where="Ethos-U program")
        scratch = np.full(self._blob.scratch_size, _DIRT, np.uint8)
        for index, (binding, value) in enumerate(zip(self._blob.inputs, inputs, strict=True)):
            place = _place(binding, scratch)
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            if value.dtype.itemsize != binding.element_size or len(data) != len(place):
                what = f"takes {binding.shape} of {binding.element_size} bytes, got {value.shape} {value.dtype}"
                raise ExecutionError(what, where=f"input {index} of the Ethos-U program")
            place[:] = data
        memory = self._memory(scratch)
        for operation in self.operations:
            self._execute(operation, memory)
        return [
            _place(binding, scratch).view(_TYPES[binding.element_size]).reshape(binding.shape)
            for binding in self._blob.outputs
        ]

    def _memory(self, scratch: Bytes) -> Memory:
        read_only = np.frombuffer(self._blob.read_only, np.uint8)
        return Memory({READ_ONLY: read_only, SCRATCH: scratch}, self.configuration.internal_memory)

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


def _place(binding: Binding, scratch: Bytes) -> Bytes:
    """The bytes of an input or output: the blob's reader has checked that they are inside."""
    length = int(np.prod(binding.shape)) * binding.element_size
    return scratch[binding.address : binding.address + length]


def _copy(operation: Copy, memory: Memory) -> None:
    data = memory.bytes(operation.source, operation.where)
    target = memory.target(operation.region, operation.base, len(data), operation.where)
    target[:] = data


def _check(operation: Operation, memory: Memory) -> None:
    """Check that everything an operation reads and writes is inside its region."""
    where = operation.where
    if isinstance(operation, Copy):
        memory.bytes(operation.source, where)
        memory.target(operation.region, operation.base, operation.source.length, where)
        return
    memory.check(operation.ifm, where)
    memory.check(operation.ofm, where, write=True)
    if isinstance(operation, Elementwise):
        if isinstance(operation.ifm2, FeatureMap):
            memory.check(operation.ifm2, where)
    elif isinstance(operation, Convolution):
        memory.bytes(operation.weights, where)
        memory.bytes(operation.scales, where)
    elif isinstance(operation.scale, Range):
        memory.bytes(operation.scale, where)
