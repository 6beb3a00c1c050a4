"""The arguments of the delegates of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delegatekit_api import TensorSpec
from delegatekit_toolkit.delegate_arguments import Arguments, digest

from . import schema
from .dataflow import calls
from .dtypes import torch_dtype


def arguments_of(
    plan: schema.ExecutionPlan, blobs: Sequence[Sequence[bytes | bytearray | memoryview]], outputs: Mapping[int, int]
) -> dict[int, Arguments]:
    """The arguments of each delegate of a plan, by index, of which `outputs` gives the number of results.

    `blobs` are those of the file's image.
    """
    values, delegates = plan.values or [], plan.delegates or []
    found: dict[int, Arguments] = {}
    for call in calls(plan):
        if isinstance(call, schema.DelegateCall) and call.delegate_index not in found:
            index = call.delegate_index
            specs = [tensor_spec(values[number].val) for number in call.args or ()]
            first = len(specs) - outputs[index]
            results = tuple(spec for spec in specs[first:] if spec is not None)
            place = delegates[index].processed
            if place is not None:
                found[index] = Arguments(digest(blobs[place.index]), tuple(specs[:first]), results)
    return found


def tensor_spec(value: object) -> TensorSpec | None:
    """The spec of a tensor table; None for any other value."""
    if not isinstance(value, schema.Tensor):
        return None
    dtype = str(torch_dtype(value.scalar_type)).removeprefix("torch.")
    order = tuple(value.dim_order or ())
    return TensorSpec(
        dtype,
        tuple(value.sizes or ()),
        dynamic=bool(value.shape_dynamism),
        dim_order=() if order == tuple(range(len(order))) else order,
    )
