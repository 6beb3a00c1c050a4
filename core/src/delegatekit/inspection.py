"""Describes a .pte without running it: methods, delegates and their owners, operators, memory, segments."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegatekit_api import FormatError

from .pte import PteFile, read, schema
from .pte.validate import operator_name, tensor_size, validate
from .text import human_size

#: Key of the named data that tells who made the file and its delegates.
MANIFEST_KEY = "delegatekit.manifest"


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
    manifest = _manifest(file)
    methods = tuple(_method(file, plan, manifest) for plan in file.program.execution_plan or ())
    return Inspection(
        size=file.size,
        program_size=file.header.program_size if file.header is not None else file.size,
        producer=str(manifest.get("producer", "unknown")),
        methods=methods,
        segments=_segments(file),
        named_data={key: len(data) for key, data in file.named_data.items()},
    )


def _manifest(file: PteFile) -> dict[str, Any]:
    data = file.named_data.get(MANIFEST_KEY)
    if data is None:
        return {}
    try:
        manifest = json.loads(bytes(data))
    except ValueError as error:
        raise FormatError("is not JSON", where=f"named data {MANIFEST_KEY}") from error
    return manifest if isinstance(manifest, dict) else {}


def _method(file: PteFile, plan: schema.ExecutionPlan, manifest: Mapping[str, Any]) -> MethodInfo:
    values = [value.val for value in plan.values or ()]
    calls = [step.instr_args for chain in plan.chains or () for step in chain.instructions or ()]
    operators = plan.operators or []
    counts = Counter(operator_name(operators[call.op_index]) for call in calls if isinstance(call, schema.KernelCall))
    owners = {
        owner.get("index"): owner
        for owner in manifest.get("delegates", ())
        if isinstance(owner, dict) and owner.get("method") == plan.name
    }
    constants = {
        value.data_buffer_idx: tensor_size(value)
        for value in values
        if isinstance(value, schema.Tensor) and value.data_buffer_idx and value.allocation_info is None
    }
    return MethodInfo(
        name=str(plan.name),
        inputs=tuple(_value(values[index]) for index in plan.inputs or ()),
        outputs=tuple(_value(values[index]) for index in plan.outputs or ()),
        delegates=tuple(
            _delegate(file, delegate, owners.get(index, {})) for index, delegate in enumerate(plan.delegates or ())
        ),
        operators=dict(counts.most_common()),
        instructions=len(calls),
        memory=tuple(plan.non_const_buffer_sizes or ())[1:],
        constants=sum(constants.values()),
    )


def _value(value: Any) -> ValueInfo:
    if isinstance(value, schema.Tensor):
        name = schema.ScalarType(value.scalar_type).name.lower()
        name = {"float": "float32", "long": "int64", "int": "int32", "half": "float16", "double": "float64"}.get(
            name, name
        )
        return ValueInfo(f"{name}{list(value.sizes or ())}", tensor_size(value))
    content = next(iter(vars(value).values()), None)
    return ValueInfo(f"{type(value).__name__}({content!r})", 0)


def _delegate(file: PteFile, delegate: schema.BackendDelegate, owner: Mapping[str, Any]) -> DelegateInfo:
    return DelegateInfo(
        id=str(delegate.id),
        blob_size=len(file.delegate_blob(delegate)),
        compile_specs=tuple(str(spec.key) for spec in delegate.compile_specs or ()),
        distribution=str(owner.get("distribution", "unknown")),
        version=str(owner.get("version", "unknown")),
        api_version=str(owner.get("api", "unknown")),
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
