"""The memory of a method's values: arenas for planned ones, the mapped file for constants, and persistent buffers."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from threading import Lock
from typing import Final, TypeAlias

import numpy
import numpy.typing
import torch

from delegatekit_api import ExecutionError, FormatError

from ..pte import PteFile, schema
from ..pte.dataflow import calls, effects
from ..pte.dtypes import torch_dtype
from ..pte.schema import is_external

#: Arenas start at multiples of this many bytes, for fast kernels.
_ALIGNMENT: Final = 64
#: Bytes past the end of an arena that may be read: vector kernels load whole registers at a tensor's end.
_OVERREAD: Final = 128

#: Bytes of initial values and unaligned constants that any method may copy when it is made.
_COPIED: Final = 64 << 20

_Bytes: TypeAlias = "numpy.typing.NDArray[numpy.uint8]"


class SharedBuffers:
    """The buffers that the methods of a session have in common, by name; each is made on first use."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self.names = frozenset(names)
        #: Held while a method runs that has such buffers.
        self.lock = Lock()
        self._memory: dict[str, _Bytes] = {}

    def get(self, name: str, size: int) -> tuple[_Bytes, bool]:
        """The memory of a buffer, zero at first, and whether it is new."""
        known = self._memory.get(name)
        if known is not None:
            return known, False
        return self._memory.setdefault(name, _zeros(size)), True


class Memory:
    """The memory of one instance of a method."""

    def __init__(self, file: PteFile, plan: schema.ExecutionPlan, shared: SharedBuffers) -> None:
        self._file = file
        self._where = f"method {plan.name}"
        self._copied = 0
        self._arenas = [_zeros(size) for size in plan.non_const_buffer_sizes or ()]
        #: For each arena the parts that are shared buffers instead: (begin, end, memory), sorted.
        self._elsewhere: dict[int, list[tuple[int, int, _Bytes]]] = {}
        #: Buffers with an initial value in the file.
        self._initialized: list[tuple[torch.Tensor, schema.Tensor]] = []
        self._shared = self._place_shared(plan, shared)

    @property
    def has_shared(self) -> bool:
        """True if some buffers are shared with other methods."""
        return bool(self._elsewhere)

    def tensor(self, table: schema.Tensor) -> torch.Tensor:
        """The tensor of a table. A planned one has a storage of its own, which cannot grow."""
        size, dtype = table.nbytes, torch_dtype(table.scalar_type)
        if table.allocation_info is not None:
            data, filled = self._planned(table.allocation_info, size)
            if is_external(table) or table.data_buffer_idx:
                self._initialized.append((data, table))
                if not filled:
                    self._count_copied(size)
                    data.copy_(self._initial(table))
        elif is_external(table):
            data = _borrowed(self._file.external_tensor(table))
        elif table.data_buffer_idx:
            data = _borrowed(self._file.constant(table.data_buffer_idx, size))
        else:
            data = torch.from_numpy(_zeros(size))
        if data.data_ptr() % dtype.itemsize:
            self._count_copied(size)
            data = data.clone()  # constants of other writers may be unaligned, which only costs a copy
        return _shaped(data, dtype, table)

    def reset(self) -> None:
        """Reset all memory to its initial state: initial values, and zeros elsewhere."""
        for arena in self._arenas:
            arena.fill(0)
        for memory in self._shared:
            memory.fill(0)
        for data, table in self._initialized:
            data.copy_(self._initial(table))

    # -- planned values ------------------------------------------------------------------------------------------

    def _place_shared(self, plan: schema.ExecutionPlan, shared: SharedBuffers) -> list[_Bytes]:
        self._fresh: set[tuple[int, int]] = set()
        found = []
        for value in plan.values or ():
            table = value.val
            name = buffer_name(table)
            if name is None or name not in shared.names or not isinstance(table, schema.Tensor) or not table.nbytes:
                continue
            assert table.allocation_info is not None
            memory, new = shared.get(name, table.nbytes)
            place = table.allocation_info
            if new:
                self._fresh.add((place.memory_id, place.offset))
            self._elsewhere.setdefault(place.memory_id, []).append((place.offset, place.offset + table.nbytes, memory))
            found.append(memory)
        for spans in self._elsewhere.values():
            spans.sort(key=lambda span: span[:2])
        return found

    def _planned(self, place: schema.AllocationDetails, size: int) -> tuple[torch.Tensor, bool]:
        """The bytes of a planned value, and whether another method has filled them."""
        memory, begin = self._arenas[place.memory_id], place.offset
        spans = self._elsewhere.get(place.memory_id)
        filled = False
        if spans is not None and size:
            position = bisect.bisect_right(spans, begin, key=lambda span: span[0]) - 1
            if position >= 0 and spans[position][1] > begin:
                start, end, memory = spans[position]
                if begin + size > end:
                    raise FormatError("a value overlaps the end of a shared buffer", where=self._where)
                filled = (place.memory_id, start) not in self._fresh
                begin -= start
            elif position + 1 < len(spans) and spans[position + 1][0] < begin + size:
                raise FormatError("a value overlaps the start of a shared buffer", where=self._where)
        # A storage of exactly these bytes: a kernel that needs more fails before it writes.
        return torch.from_numpy(memory[begin : begin + size]), filled

    def _initial(self, table: schema.Tensor) -> torch.Tensor:
        """The initial value of a buffer that the method updates."""
        return _borrowed(_start(self._file, table) or memoryview(b""))

    # -- limits --------------------------------------------------------------------------------------------------

    def _count_copied(self, size: int) -> None:
        """Reject a file whose values all name the same bytes before the copies fill the memory."""
        self._copied += size
        if self._copied > self._copy_limit:
            raise FormatError(f"would copy {self._copied} bytes or more out of its file", where=self._where)

    @cached_property
    def _copy_limit(self) -> int:
        outside = sum(len(item.data) for item in self._file.external.values())
        return max(_COPIED, 4 * (self._file.size + outside))


def buffer_name(table: object) -> str | None:
    """The name of a table that represents a buffer of the module; None for other values."""
    if not isinstance(table, schema.Tensor) or table.allocation_info is None or table.extra_tensor_info is None:
        return None
    return table.extra_tensor_info.fully_qualified_name or None


def find_buffers(plan: schema.ExecutionPlan, delegate_outputs: Mapping[int, int]) -> dict[str, int]:
    """The values that keep their content from call to call, by name or, without one in the file, as "value 7".

    These are buffers with an initial value, and planned values that are updated without ever being written whole.
    """
    found = effects(plan, delegate_outputs)
    written = {index for effect in found for index in effect.writes} | set(plan.inputs or ())
    updated = {
        index
        for call, effect in zip(calls(plan), found, strict=False)
        if not (isinstance(call, schema.KernelCall) and _is_row_copy(plan, call))
        for index in effect.updates
    }
    places: dict[tuple[int, int], tuple[str, int]] = {}
    for index, value in enumerate(plan.values or ()):
        table = value.val
        if not isinstance(table, schema.Tensor) or table.allocation_info is None:
            continue
        initial = bool(table.data_buffer_idx) or is_external(table)
        if initial or (index in updated and index not in written):
            place = table.allocation_info
            places.setdefault((place.memory_id, place.offset), (buffer_name(table) or f"value {index}", index))
    return dict(places.values())


def check_shared(file: PteFile, plans: Iterable[schema.ExecutionPlan], names: Collection[str]) -> None:
    """Check that shared buffers are the same in all methods that have them. Raises FormatError with the name."""
    known: dict[str, tuple[str | None, schema.Tensor]] = {}
    for plan in plans:
        for value in plan.values or ():
            table = value.val
            name = buffer_name(table)
            if name is None or name not in names or not isinstance(table, schema.Tensor):
                continue
            method, first = known.setdefault(name, (plan.name, table))
            if _layout(first) != _layout(table):
                raise FormatError(
                    f"is {_layout(table)} in method {plan.name}, but {_layout(first)} in method {method}",
                    where=f"shared buffer {name}",
                )
            if _start(file, first) != _start(file, table):
                raise FormatError(
                    f"starts with other values in method {plan.name} than in method {method}",
                    where=f"shared buffer {name}",
                )


def _layout(table: schema.Tensor) -> str:
    dtype = str(torch_dtype(table.scalar_type)).removeprefix("torch.")
    return f"{dtype} {table.sizes} in order {list(table.dim_order or ())}"


def _start(file: PteFile, table: schema.Tensor) -> memoryview | None:
    if is_external(table):
        return file.external_tensor(table)
    return file.mutable_state(table.data_buffer_idx, table.nbytes) if table.data_buffer_idx else None


def _is_row_copy(plan: schema.ExecutionPlan, call: schema.KernelCall) -> bool:
    return (plan.operators or [])[call.op_index].full_name == "executorch_prim::et_copy_index.tensor"


def _zeros(size: int) -> _Bytes:
    try:
        # Zeros of NumPy take no memory before they are touched; PyTorch's are written.
        memory = numpy.zeros(size + _ALIGNMENT + _OVERREAD, dtype=numpy.uint8)
    except MemoryError as error:
        raise ExecutionError(f"there is no memory for a buffer of {size} bytes") from error
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def _borrowed(data: memoryview) -> torch.Tensor:
    """The bytes as a tensor that points at them."""
    if not len(data):
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_numpy(numpy.asarray(_Borrowed(data)))


class _Borrowed:
    """Bytes that NumPy assumes writable: for a read-only file PyTorch would warn, although constants are only read."""

    def __init__(self, data: memoryview) -> None:
        self.data = numpy.frombuffer(data, dtype=numpy.uint8)
        self.__array_interface__ = {
            "version": 3,
            "shape": self.data.shape,
            "typestr": "|u1",
            "data": (self.data.ctypes.data, False),
        }


def _shaped(data: torch.Tensor, dtype: torch.dtype, table: schema.Tensor) -> torch.Tensor:
    """Bytes as a tensor of the table's sizes, in its dim order."""
    sizes, order = table.sizes or [], list(table.dim_order or ())
    dense = data.view(dtype).reshape([sizes[axis] for axis in order])
    return dense.permute([order.index(axis) for axis in range(len(order))])
