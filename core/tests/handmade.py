"""Small programs for the tests of format and engine, built by hand from the schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from delegatekit.pte import PteImage, to_bytes
from delegatekit.pte.schema import (
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    Chain,
    ContainerMetadata,
    DelegateCall,
    EValue,
    ExecutionPlan,
    Instruction,
    Int,
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
