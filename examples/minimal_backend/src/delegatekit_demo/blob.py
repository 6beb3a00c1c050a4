"""The blob: a list of steps as JSON. Written from a partition, read back with every field checked.

Values are numbered: first the inputs, then the constants, then the result of each step.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from delegatekit_api import FormatError, NamedData, PartitionProgram, PreprocessResult, operator_name

#: Operator -> its name in the blob.
NAMES = {"aten.add.Tensor": "add", "aten.mul.Tensor": "mul"}
#: Changes whenever an older runtime would misread the blob.
VERSION = 1


@dataclass(frozen=True)
class Blob:
    """What the runtime is to do."""

    #: Number of inputs.
    inputs: int
    #: Key of the named data and shape of each constant.
    constants: tuple[tuple[str, tuple[int, ...]], ...]
    #: Name, first operand, second operand.
    steps: tuple[tuple[str, int, int], ...]
    #: The values that are returned.
    outputs: tuple[int, ...]


def compile_partition(partition: PartitionProgram) -> PreprocessResult:
    """The partition as a blob; its constants become named data, keyed by their content."""
    view = partition.view
    number = {node: index for index, node in enumerate((*view.inputs, *view.constants))}
    data = [_named(tensor) for tensor in view.constants.values()]
    steps: list[tuple[str, int, int]] = []
    handles: dict[int | str, tuple[int, ...]] = {}
    for node in view.graph.nodes:
        if node.op != "call_function":
            continue
        # x * x has one input node.
        first, second = (*node.all_input_nodes, *node.all_input_nodes)[:2]
        handles[len(steps)] = (node.meta["debug_handle"],)
        steps.append((NAMES[operator_name(node)], number[first], number[second]))
        number[node] = len(number)
    shapes = [tuple(tensor.shape) for tensor in view.constants.values()]
    blob = Blob(
        inputs=len(view.inputs),
        constants=tuple((item.key, shape) for item, shape in zip(data, shapes, strict=True)),
        steps=tuple(steps),
        outputs=tuple(number[node] for node in view.outputs if node is not None),
    )
    text = json.dumps({"version": VERSION, **asdict(blob)}, sort_keys=True)
    return PreprocessResult(text.encode(), named_data=tuple(data), debug_handle_map=handles)


def _named(tensor: torch.Tensor) -> NamedData:
    content = tensor.contiguous().numpy().tobytes()
    # The tensor itself goes to the file writer, which streams it.
    return NamedData("demo_" + hashlib.sha256(content).hexdigest(), tensor)


def read_blob(data: memoryview, named_data: Mapping[str, memoryview], inputs: int, outputs: int) -> Blob:
    """Read a blob for a call with so many inputs and outputs. Raises FormatError for anything that is not one."""
    try:
        fields = json.loads(bytes(data))
        version = fields["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError("is not a DemoBackend blob", where="DemoBackend blob") from error
    if version != VERSION:
        raise FormatError(
            f"has version {version!r}, this runtime knows {VERSION}",
            where="DemoBackend blob",
            hint="install the delegatekit-demo that made the file: `delegatekit inspect FILE` names it",
        )
    try:
        blob = Blob(
            inputs=_count(fields["inputs"]),
            constants=tuple((str(key), tuple(map(_count, shape))) for key, shape in fields["constants"]),
            steps=tuple((str(name), _count(first), _count(second)) for name, first, second in fields["steps"]),
            outputs=tuple(map(_count, fields["outputs"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"has a damaged field: {error}", where="DemoBackend blob") from error
    _check(blob, named_data, inputs, outputs)
    return blob


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of 0 or more")
    return value


def _check(blob: Blob, named_data: Mapping[str, memoryview], inputs: int, outputs: int) -> None:
    if (blob.inputs, len(blob.outputs)) != (inputs, outputs):
        raise FormatError("is not for this call's inputs and outputs", where="DemoBackend blob")
    for key, shape in blob.constants:
        if key not in named_data or len(named_data[key]) != 4 * math.prod(shape):
            raise FormatError(f"its constant {key} of shape {shape} is not in the file", where="DemoBackend blob")
    known = blob.inputs + len(blob.constants)
    for index, (name, first, second) in enumerate(blob.steps):
        if name not in NAMES.values() or max(first, second) >= known + index:
            raise FormatError(f"step {index} is damaged", where="DemoBackend blob")
    if any(output >= known + len(blob.steps) for output in blob.outputs):
        raise FormatError("returns a value that it does not compute", where="DemoBackend blob")
