"""Small programs for the tests of format and engine, built by hand from the schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from delegatekit.pte import PteImage, to_bytes
from delegatekit.pte.schema import (
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    Bool,
    Chain,
    ContainerMetadata,
    DelegateCall,
    EValue,
    ExecutionPlan,
    Instruction,
    Int,
    JumpFalseCall,
    KernelCall,
    Operator,
    Tensor,
)
from delegatekit_api import NamedData

WEIGHT = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])


def tensor(sizes: list[int], offset: int | None = None, constant: int = 0) -> EValue:
    place = None if offset is None else AllocationDetails(1, offset, 0)
    order = bytes(range(len(sizes)))
    return EValue(Tensor(scalar_type=6, sizes=sizes, dim_order=order, data_buffer_idx=constant, allocation_info=place))


def plan(values: list[EValue], inputs: list[int], outputs: list[int], calls: list[Any], **more: Any) -> ExecutionPlan:
    defaults: dict[str, Any] = {
        "name": "forward",
        "container_meta_type": ContainerMetadata("", ""),
        "chains": [Chain([], [], [Instruction(call) for call in calls])],
        "operators": [],
        "delegates": [],
        "non_const_buffer_sizes": [0, 128],
    }
    return ExecutionPlan(values=values, inputs=inputs, outputs=outputs, **(defaults | more))


def add_image(change: Callable[[ExecutionPlan], None] = lambda plan: None) -> PteImage:
    """x + WEIGHT: values are x, WEIGHT, alpha and the result."""
    method = plan(
        [tensor([5], 0), tensor([5], constant=1), EValue(Int(1)), tensor([5], 64)],
        [0],
        [3],
        [KernelCall(0, [0, 1, 2, 3, 3])],
        operators=[Operator("aten::add", "out")],
    )
    change(method)
    return PteImage(plans=(method,), constants=(WEIGHT,))


def add_program(change: Callable[[ExecutionPlan], None] = lambda plan: None) -> bytes:
    return to_bytes(add_image(change))


def delegate_program(change: Callable[[ExecutionPlan], None] = lambda plan: None) -> bytes:
    """One delegate of id "Test" called on an input and an output of 5 elements."""
    place = BackendDelegateDataReference(1, 0)
    method = plan(
        [tensor([5], 0), tensor([5], 64)],
        [0],
        [1],
        [DelegateCall(0, [0, 1])],
        delegates=[BackendDelegate("Test", place, [])],
    )
    change(method)
    return to_bytes(PteImage((method,), delegate_blobs=(b"blob" * 9,), named_data=(NamedData("key", b"data"),)))


def number(value: int) -> EValue:
    return EValue(Int(value))


def build(
    values: list[EValue], inputs: list[int], outputs: list[int], calls: list[Any], names: list[str], **more: Any
) -> bytes:
    image = {key: more.pop(key) for key in ("constants", "mutable_state") if key in more}
    operators = [Operator(*name.rsplit(".", 1)) if "." in name else Operator(name, "") for name in names]
    more.setdefault("non_const_buffer_sizes", [0, 1024])
    method = plan(values, inputs, outputs, calls, operators=operators, **more)
    return to_bytes(PteImage((method,), **image))


def both(data: bytes, *inputs: Any, calls: int = 1) -> list[Any]:
    """The outputs of the last of some calls, after checking that the stock runtime computes the same in each.

    The same means equal except for the last bit of float32.
    """
    import delegatekit

    _C = pytest.importorskip("executorch.extension.pybindings._C", reason="executorch is not installed")
    method = delegatekit.load(data)["forward"]
    stock = _C._load_program_from_buffer(data).load_method("forward")
    ours: list[Any] = []
    for _ in range(calls):
        result = method(*inputs)
        ours = list(result) if isinstance(result, tuple) else [result]
        for mine, theirs in zip(ours, stock(tuple(inputs)), strict=True):
            if isinstance(mine, torch.Tensor):
                assert mine.dtype == theirs.dtype
                # Vectorized exp and similar functions may round their last bit either way.
                torch.testing.assert_close(mine, theirs, rtol=2e-7, atol=1e-7)
            else:
                assert mine == theirs
    return ours


def endless() -> bytes:
    """A loop whose condition is recomputed each time, and is never true."""
    values = [EValue(Bool(False)), tensor([5], 0), number(1), number(2)]
    return build(values, [1], [1], [KernelCall(0, [2, 3, 0]), JumpFalseCall(0, 0)], ["executorch_prim::eq.Scalar"])
