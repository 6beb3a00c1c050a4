"""Describes a .pte without running it: methods, delegates and their owners, operators, memory, segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .manifest import Manifest, Owner, read_manifest
from .pte import PteFile, read, schema
from .pte.dtypes import TORCH_DTYPES
from .pte.validate import validate
from .text import human_size


@dataclass(frozen=True)
class ValueInfo:
    """An input or output: "float32[1, 3, 224, 224]", or the kind and value of what is no tensor."""

    text: str
    #: Bytes; 0 for what is no tensor.
    size: int


@dataclass(frozen=True)
class DelegateInfo:
    """A delegate and the plugin that made it ("unknown" in files of other writers)."""

    id: str
    blob_size: int
    compile_specs: tuple[str, ...]
    distribution: str
    version: str
    api_version: str


@dataclass(frozen=True)
class MethodInfo:
    """One method. `memory` lists the planned buffers in bytes, `constants` the bytes of constants that it uses."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    delegates: tuple[DelegateInfo, ...]
    #: Kernel name -> number of calls.
    operators: Mapping[str, int]
    instructions: int
    memory: tuple[int, ...]
    constants: int


@dataclass(frozen=True)
class SegmentInfo:
    """A data segment: what it holds and how many bytes."""

    index: int
    kind: str
    size: int


@dataclass(frozen=True)
class Inspection:
    """What is in a file. `producer` is the tool that wrote it, as far as it says so."""

    size: int
    program_size: int
    producer: str
    methods: tuple[MethodInfo, ...]
    segments: tuple[SegmentInfo, ...]
    named_data: Mapping[str, int]

    def __str__(self) -> str:
        lines = [f"{human_size(self.size)} (program {human_size(self.program_size)}), written by {self.producer}"]
        for method in self.methods:
            lines.append(f"method {method.name}: {method.instructions} instructions")
            lines.append("  inputs: " + (", ".join(value.text for value in method.inputs) or "none"))
            lines.append("  outputs: " + (", ".join(value.text for value in method.outputs) or "none"))
            lines.append(f"  memory: {human_size(sum(method.memory))}, constants: {human_size(method.constants)}")
            for delegate in method.delegates:
                owner = f"{delegate.distribution} {delegate.version} (API {delegate.api_version})"
                lines.append(f"  delegate {delegate.id}: blob {human_size(delegate.blob_size)}, made by {owner}")
            calls = ", ".join(f"{name} x{count}" for name, count in method.operators.items())
            lines.append(f"  runtime operators: {calls or 'none'}")
        lines.extend(f"segment {item.index}: {item.kind}, {human_size(item.size)}" for item in self.segments)
        return "\n".join(lines)


def inspect(source: str | Path | bytes) -> Inspection:
    """Describe a .pte. Raises FormatError if it is damaged; needs neither plugins nor their runtimes."""
    file = read(source)
    validate(file)
    manifest = read_manifest(file)
    methods = tuple(_method(file, plan, manifest) for plan in file.program.execution_plan or ())
    return Inspection(
        size=file.size,
        program_size=file.header.program_size if file.header is not None else file.size,
        producer=manifest.producer,
        methods=methods,
        segments=_segments(file),
        named_data={key: len(data) for key, data in file.named_data.items()},
    )


def _method(file: PteFile, plan: schema.ExecutionPlan, manifest: Manifest) -> MethodInfo:
    values = [value.val for value in plan.values or ()]
    calls = [step.instr_args for chain in plan.chains or () for step in chain.instructions or ()]
    operators = plan.operators or []
    counts = Counter(operators[call.op_index].full_name for call in calls if isinstance(call, schema.KernelCall))
    constants = {
        value.data_buffer_idx: value.nbytes
        for value in values
        if isinstance(value, schema.Tensor) and value.data_buffer_idx and value.allocation_info is None
    }
    return MethodInfo(
        name=str(plan.name),
        inputs=tuple(_value(values[index]) for index in plan.inputs or ()),
        outputs=tuple(_value(values[index]) for index in plan.outputs or ()),
        delegates=tuple(
            _delegate(file, delegate, manifest.owner(str(plan.name), index))
            for index, delegate in enumerate(plan.delegates or ())
        ),
        operators=dict(counts.most_common()),
        instructions=len(calls),
        memory=tuple(plan.non_const_buffer_sizes or ())[1:],
        constants=sum(constants.values()),
    )


def _value(value: Any) -> ValueInfo:
    if isinstance(value, schema.Tensor):
        return ValueInfo(f"{_type_name(value)}{list(value.sizes or ())}", value.nbytes)
    content = next(iter(vars(value).values()), None)
    return ValueInfo(f"{type(value).__name__}({content!r})", 0)


def _type_name(tensor: schema.Tensor) -> str:
    """PyTorch's name of the element type; the format's own where PyTorch has none."""
    dtype = TORCH_DTYPES.get(schema.ScalarType(tensor.scalar_type))
    if dtype is None:
        return schema.ScalarType(tensor.scalar_type).name.lower()
    return str(dtype).removeprefix("torch.")


def _delegate(file: PteFile, delegate: schema.BackendDelegate, owner: Owner) -> DelegateInfo:
    return DelegateInfo(
        id=str(delegate.id),
        blob_size=len(file.delegate_blob(delegate)),
        compile_specs=tuple(str(spec.key) for spec in delegate.compile_specs or ()),
        distribution=owner.distribution,
        version=owner.version,
        api_version=owner.api_version,
    )


def _segments(file: PteFile) -> tuple[SegmentInfo, ...]:
    kinds: dict[int, list[str]] = {}
    program = file.program
    if program.constant_segment is not None:
        kinds.setdefault(program.constant_segment.segment_index, []).append("constants")
    for table in program.mutable_data_segments or ():
        kinds.setdefault(table.segment_index, []).append("initial state")
    for plan in program.execution_plan or ():
        for delegate in plan.delegates or ():
            if delegate.processed is not None and delegate.processed.location == schema.DataLocation.SEGMENT:
                kinds.setdefault(delegate.processed.index, []).append(f"blob of {delegate.id}")
    for named in program.named_data or ():
        kinds.setdefault(named.segment_index, []).append(f"named data {str(named.key)[:24]}")
    return tuple(
        SegmentInfo(index, " and ".join(dict.fromkeys(kinds.get(index, ["unused"]))), len(segment))
        for index, segment in enumerate(file.segments)
    )
