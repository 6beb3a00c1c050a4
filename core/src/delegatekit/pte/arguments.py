"""The arguments that a delegate is called with, in words of the manifest.

ExecuTorch's runtime hands a delegate its blob without them, so whoever loads it by its blob alone finds them here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import TensorSpec

from . import schema
from .dataflow import calls
from .dtypes import torch_dtype

#: The word for an argument that is a number.
_NUMBER: Final = "number"
_WORD: Final = re.compile(r"([a-z][a-z0-9_]*)(\??)\[([0-9,]*)\](?:@([0-9,]+))?")


@dataclass(frozen=True)
class Arguments:
    """The tensors that a delegate is called with; None stands for a number among the inputs."""

    #: `digest` of its blob.
    blob: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec, ...]

    def to_json(self) -> dict[str, Any]:
        """Items of the manifest."""
        return {"blob": self.blob, "arguments": [_word(spec) for spec in (*self.inputs, *self.outputs)]}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Arguments | None:
        """The arguments in a delegate's item of the manifest; None if they are missing or damaged."""
        blob, words, outputs = item.get("blob"), item.get("arguments"), item.get("outputs")
        if not isinstance(blob, str) or not isinstance(words, list) or not isinstance(outputs, int):
            return None
        try:
            specs = [_spec(str(word)) for word in words]
        except ValueError:
            return None
        first = len(specs) - outputs
        results = tuple(spec for spec in specs[first:] if spec is not None)
        if not 0 <= first <= len(specs) or len(results) != outputs:
            return None
        return cls(blob, tuple(specs[:first]), results)


def digest(blob: Iterable[bytes | bytearray | memoryview]) -> str:
    """The name of a blob, whose parts are given: 128 bits of its SHA-256 in hexadecimal."""
    found = hashlib.sha256()
    for part in blob:
        found.update(part)
    return found.hexdigest()[:32]


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


def _word(spec: TensorSpec | None) -> str:
    """A spec in the manifest's form.

    >>> _word(TensorSpec("float32", (1, 3, 8, 8), dynamic=True, dim_order=(0, 2, 3, 1)))
    'float32?[1,3,8,8]@0,2,3,1'
    """
    if spec is None:
        return _NUMBER
    sizes, order = (",".join(map(str, numbers)) for numbers in (spec.shape, spec.dim_order))
    return f"{spec.dtype}{'?' * spec.dynamic}[{sizes}]{'@' * bool(order)}{order}"


def _spec(word: str) -> TensorSpec | None:
    """A spec from the manifest. Raises ValueError.

    >>> _spec("int64[2]"), _spec("number")
    (TensorSpec(dtype='int64', shape=(2,), dynamic=False), None)
    """
    if word == _NUMBER:
        return None
    found = _WORD.fullmatch(word)
    if found is None:
        raise ValueError(word)
    dtype, dynamic, sizes, order = found.groups(default="")
    shape, axes = (tuple(map(int, text.split(","))) if text else () for text in (sizes, order))
    if axes and sorted(axes) != list(range(len(shape))):
        raise ValueError(word)
    return TensorSpec(dtype, shape, bool(dynamic), axes)
