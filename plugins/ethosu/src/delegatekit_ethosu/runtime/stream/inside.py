"""The operations of a blob's command stream in readable form: data flow is derived from the bytes in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from delegatekit_api.blobs import BlobOperator

from ...blob import Binding, Blob, unpack
from .machine import Machine
from .memory import READ_ONLY, SCRATCH, TABLES_BYTES, Integers, Memory, region_name
from .operations import Activation, Convolution, Copy, Elementwise, FeatureMap, Kernel, Operation, Pool, Range

#: The NPU's internal memory, which has no region number.
_INTERNAL: Final = -1


def operators(blob: memoryview, named_data: Mapping[str, memoryview]) -> list[BlobOperator]:
    """The operations in order, of our blobs and stock's.

    Raises FormatError for a damaged blob, and for one with unsupported parts: of another NPU than a U55.
    """
    content = unpack(blob, named_data)
    machine = Machine(content)
    owners = _Owners(content, machine.configuration.internal_memory)
    found = []
    for index, operation in enumerate(machine.operations):
        reads = dict.fromkeys(name for place in _read(operation) for name in owners.of(place, operation))
        makes = owners.own(f"result {index}", _written(operation), operation)
        found.append((_kind(operation), tuple(reads), makes, _facts(operation)))
    for number, output in enumerate(content.outputs):
        names = owners.bound(output)
        for _, _, makes, facts in found:
            if makes in names:
                facts["returned"] = f"{facts['returned']}, {number}" if "returned" in facts else f"in output {number}"
    return [BlobOperator(kind, reads, (makes,), facts) for kind, reads, makes, facts in found]


class _Owners:
    """The last writer of each byte: an input, or the result of an operation."""

    def __init__(self, content: Blob, internal: int) -> None:
        read_only = np.frombuffer(content.read_only, np.uint8)
        regions = {READ_ONLY: read_only, SCRATCH: np.empty(content.scratch_size, np.uint8)}
        self._memory = Memory(regions, internal)
        self._internal = internal
        #: Number 0 is unwritten.
        self._names = [""]
        self._bytes = {SCRATCH: np.zeros(content.scratch_size, np.int32), _INTERNAL: np.zeros(internal, np.int32)}
        for number, binding in enumerate(content.inputs):
            self._names.append(f"input {number}")
            self._bytes[SCRATCH][_bound(binding)] = len(self._names) - 1

    def own(self, name: str, place: FeatureMap | Range, operation: Operation) -> str:
        """Record that an operation writes there; return the name."""
        self._names.append(name)
        self._bytes[place.region][self._places(place, operation)] = len(self._names) - 1
        return name

    def of(self, place: FeatureMap | Range | Activation, operation: Operation) -> Iterator[str]:
        """The writers of an operation's operand. Unwritten memory is a constant, named by its location."""
        if isinstance(place, Activation):
            place = self._table(place.table or 0, operation)
        known: list[str] = []
        if place.region in self._bytes:
            known = self._named(self._bytes[place.region][self._places(place, operation)])
        yield from known or [_place(place)]

    def bound(self, output: Binding) -> list[str]:
        """The writers of an output."""
        return self._named(self._bytes[SCRATCH][_bound(output)])

    def _named(self, owners: np.typing.NDArray[np.int32]) -> list[str]:
        return [self._names[number] for number in np.unique(owners) if number]

    def _places(self, place: FeatureMap | Range, operation: Operation) -> slice | Integers:
        if isinstance(place, Range):
            return slice(place.base, place.base + place.length)
        return self._memory.places(place, operation.where)

    def _table(self, number: int, operation: Operation) -> Range:
        """The location of a table: one of 8-bit elements has 256 bytes; there is one of 16-bit elements."""
        small = not isinstance(operation, Copy) and operation.ofm.dtype.itemsize == 1
        size = 256 if small else TABLES_BYTES
        return Range(_INTERNAL, self._internal - TABLES_BYTES + number * size, size)


def _bound(binding: Binding) -> slice:
    return slice(binding.address, binding.address + int(np.prod(binding.shape)) * binding.element_size)


def _kind(operation: Operation) -> str:
    match operation:
        case Convolution():
            return "depthwise" if operation.order.depthwise else "conv"
        case Pool():
            return f"pool {operation.mode.name.lower()}"
        case Elementwise():
            return f"elementwise {operation.mode.name.lower()}"
    return "dma"


def _read(operation: Operation) -> Iterator[FeatureMap | Range | Activation]:
    if isinstance(operation, Copy):
        yield operation.source
        return
    yield operation.ifm
    if isinstance(operation, Elementwise) and isinstance(operation.ifm2, FeatureMap):
        yield operation.ifm2
    if isinstance(operation, Convolution):
        yield from (operation.weights, operation.scales)
    if isinstance(operation, Pool) and isinstance(operation.scale, Range):
        yield operation.scale
    if operation.activation.table is not None:
        yield operation.activation


def _written(operation: Operation) -> FeatureMap | Range:
    if isinstance(operation, Copy):
        region = _INTERNAL if operation.region is None else operation.region
        return Range(region, operation.base, operation.source.length)
    return operation.ofm


def _facts(operation: Operation) -> dict[str, str]:
    if isinstance(operation, Copy):
        return {"bytes": f"{operation.source.length:,}", "to": _place(_written(operation))}
    facts = {"result": _type(operation.ofm), "of": _type(operation.ifm)}
    if isinstance(operation, Elementwise):
        second = operation.ifm2
        facts |= {} if second is None else {"and": str(second) if isinstance(second, int) else _type(second)}
    else:
        facts |= _window(operation.kernel)
        facts |= {"upscale": operation.upscale.name.lower()} if operation.upscale else {}
    clamp = operation.activation.clamp
    limits = np.iinfo(operation.ofm.dtype)  # type: ignore[type-var]
    if clamp is not None and clamp != (limits.min, limits.max):
        facts["clamp"] = f"{clamp[0]} to {clamp[1]}"
    if operation.activation.table is not None:
        facts["table"] = str(operation.activation.table)
    return facts


def _window(kernel: Kernel) -> dict[str, str]:
    sizes = {"kernel": kernel.size, "stride": kernel.stride, "dilation": kernel.dilation}
    found = {key: "x".join(map(str, value)) for key, value in sizes.items() if value != (1, 1)}
    return found | ({"padding": _listed(kernel.padding)} if any(kernel.padding) else {})


def _type(feature_map: FeatureMap) -> str:
    return f"{feature_map.dtype.name}{_listed(feature_map.shape)}"


def _listed(numbers: Sequence[int]) -> str:
    return str(list(numbers))


def _place(place: FeatureMap | Range) -> str:
    where = "internal memory" if place.region == _INTERNAL else region_name(place.region)
    if isinstance(place, FeatureMap):
        return f"{where} at {place.bases[0]:#x}"
    return f"{where} {place.base:#x} to {place.base + place.length:#x}"
