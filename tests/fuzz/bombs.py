"""Small files that demand much: each is well-formed and unfolds to far more work or memory than it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

from delegatekit.pte import PteImage, schema, to_bytes, writer
from delegatekit_toolkit import flatbuffer

Value = schema.EValue


def _file(values: Sequence[Value], calls: Sequence[Any] = (), image: Any = (), **more: Any) -> bytes:
    fields: dict[str, Any] = {
        "name": "forward",
        "container_meta_type": schema.ContainerMetadata("", ""),
        "values": list(values),
        "inputs": [],
        "outputs": [],
        "chains": [schema.Chain([], [], [schema.Instruction(call) for call in calls])],
        "operators": [],
        "delegates": [],
        "non_const_buffer_sizes": [0, 1 << 20],
    }
    return to_bytes(PteImage((schema.ExecutionPlan(**(fields | more)),), **dict(image)))


def _tensor(offset: int | None, sizes: Sequence[int] = (4,), data: int = 0) -> Value:
    place = None if offset is None else schema.AllocationDetails(1, offset & 0xFFFFFFFF, offset >> 32)
    order = bytes(range(len(sizes)))
    return Value(
        schema.Tensor(scalar_type=6, sizes=list(sizes), dim_order=order, data_buffer_idx=data, allocation_info=place)
    )


def _outside() -> Value:
    info = schema.ExtraTensorInfo(fully_qualified_name="weight", location=1)
    return Value(schema.Tensor(scalar_type=6, sizes=[0], dim_order=b"\0", extra_tensor_info=info))


def many_values(n: int) -> bytes:
    """An honest file: n kernel calls on n tensors."""
    calls = [schema.KernelCall(0, [i, i + 1, n, i + 2, i + 2]) for i in range(n - 2)]
    values = [*(_tensor(16 * i) for i in range(n)), Value(schema.Int(1))]
    return _file(values, calls, operators=[schema.Operator("aten::add", "out")], non_const_buffer_sizes=[0, 16 * n])


def one_list_in_many_calls(n: int) -> bytes:
    values = [*(_tensor(16 * i) for i in range(n)), Value(schema.TensorList(list(range(n)))), Value(schema.Int(0))]
    calls = [schema.KernelCall(0, [n, n + 1, 0, 0])] * n
    return _file(values, calls, operators=[schema.Operator("aten::cat", "out")], non_const_buffer_sizes=[0, 16 * n])


def a_chain_of_moves(n: int) -> bytes:
    """Each move passes a constant on, and the last comes first."""
    return _file([_outside(), *(_tensor(0) for _ in range(n))], [schema.MoveCall(i, i + 1) for i in reversed(range(n))])


def many_inputs(n: int) -> bytes:
    return _file(
        [_tensor(16 * i) for i in range(n)], inputs=list(reversed(range(n))), non_const_buffer_sizes=[0, 16 * n]
    )


def one_delegate_call_with_many_arguments(n: int) -> bytes:
    """All arguments see one memory, which was read before."""
    values = [_tensor(0) for _ in range(n)]
    place = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0)
    calls = [schema.DelegateCall(0, [0, 0]), schema.DelegateCall(0, list(range(n)))]
    delegates = [schema.BackendDelegate("Test", place, [])]
    return _file(values, calls, {"delegate_blobs": (b"x",)}, inputs=[0], delegates=delegates)


def one_state_for_many_buffers(n: int) -> bytes:
    """A megabyte of initial state, copied into each of n buffers."""
    state = torch.ones(1 << 18)
    values = [_tensor(i << 20, [1 << 18], 1) for i in range(n)]
    return _file(values, (), {"mutable_state": (state,)}, non_const_buffer_sizes=[0, n << 20])


def one_unaligned_constant_for_many_values(n: int) -> bytes:
    """A megabyte of constants at an unaligned place, which must be copied for each of n values."""
    constants = (b"x", torch.ones(1 << 18))
    with mock.patch.object(writer, "CONSTANT_ALIGNMENT", 1):
        return _file([_tensor(None, [1 << 18], 2) for _ in range(n)], (), {"constants": constants})


def much_planned_memory(n: int) -> bytes:
    return _file([_tensor(0)], non_const_buffer_sizes=[0, *[1 << 35] * n])


def many_large_outputs(n: int) -> bytes:
    """Tensors that are neither planned nor in the file."""
    return _file([_tensor(None, [1 << 30]) for _ in range(n)])


def one_table_for_many_values(n: int) -> bytes:
    """The vector of values points at one and the same table, n times."""

    class Sharing(flatbuffer._Writer):
        """Writes each table once, however often it is named."""

        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, int] = {}

        def table(self, value: flatbuffer.Table) -> int:
            if id(value) not in self.known:
                self.known[id(value)] = super().table(value)
            return self.known[id(value)]

    with mock.patch.object(flatbuffer, "_Writer", Sharing):
        return _file([_tensor(0, ())] * n)


BOMBS: dict[str, Callable[[int], bytes]] = {
    function.__name__: function
    for function in (
        many_values,
        one_list_in_many_calls,
        a_chain_of_moves,
        many_inputs,
        one_delegate_call_with_many_arguments,
        one_state_for_many_buffers,
        one_unaligned_constant_for_many_values,
        much_planned_memory,
        many_large_outputs,
        one_table_for_many_values,
    )
}
