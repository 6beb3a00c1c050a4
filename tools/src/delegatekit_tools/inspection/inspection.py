"""Describes a .pte without running it: methods, delegates and their owners, operators, memory, segments; and a .ptd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from delegatekit.files import Source, open_view
from delegatekit.pte import PteFile, read, read_ptd, schema
from delegatekit.pte.axes import Axis, InputAxes, fitting_axes
from delegatekit.pte.bundle import is_bundle, read_bundle
from delegatekit.pte.dtypes import TORCH_DTYPES
from delegatekit.pte.estimates import Estimates, read_estimates
from delegatekit.pte.manifest import Manifest, Owner, read_manifest
from delegatekit.pte.ptd_schema import TensorLayout
from delegatekit.pte.reader import naming
from delegatekit.pte.schema import is_external
from delegatekit.pte.validate import validate
from delegatekit.text import human_size, layer_lines, summary
from delegatekit_api.devices import Estimate

from .insides import Insides, insides
from .operators import operator_lines


@dataclass(frozen=True)
class ValueInfo:
    """An input or output: "float32[1, 3, 224, 224]", or the kind and value of what is not a tensor.

    Sizes that may change from call to call are shown as upper bounds: "float32[<=8, 3, 32]". Of files of other writers,
    and of outputs, it is known only whether any size changes: "float32[<=8, <=3, <=32]".
    """

    text: str
    #: Bytes; 0 for what is not a tensor.
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
    #: What its backend expects it to cost on its device.
    estimate: Estimate | None = None
    #: Its operators, if they were asked for.
    insides: Insides | None = None


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
class KeyInfo:
    """What belongs to a key of a data file: "float32[8, 4]", or "data of a backend"."""

    key: str
    text: str
    #: Bytes; None for a backend's data that is not in the inspected file.
    size: int | None

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" + (f", {human_size(self.size)}" if self.size is not None else "")


@dataclass(frozen=True)
class DataInspection:
    """What is in a data file (.ptd)."""

    size: int
    keys: tuple[KeyInfo, ...]

    def __str__(self) -> str:
        return "\n".join([f"{human_size(self.size)}, {len(self.keys)} keys", *map(str, self.keys)])


@dataclass(frozen=True)
class Inspection:
    """What is in a file. `producer` is the tool that wrote it, as far as it says so."""

    size: int
    program_size: int
    producer: str
    methods: tuple[MethodInfo, ...]
    segments: tuple[SegmentInfo, ...]
    named_data: Mapping[str, int]
    #: What the program needs from data files.
    external: tuple[KeyInfo, ...] = ()
    #: Names of the data files that were written with it, without ".ptd"; "" is the one that is named as the .pte.
    data_files: tuple[str, ...] = ()
    #: Of a bundle: method -> number of its cases.
    cases: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, layers: bool = False, narrow: bool = False) -> str:
        """The inspection as text; with `layers`, all layers of estimates instead of those that take longest.

        If `narrow`, layers and operators are told in short lines instead of a table.
        """
        lines = [f"{human_size(self.size)} (program {human_size(self.program_size)}), written by {self.producer}"]
        if self.cases:
            cases = ", ".join(f"{name} {count}" for name, count in self.cases.items())
            lines.append(f"bundled with inputs and expected outputs: cases of {cases}")
        for method in self.methods:
            lines.append(f"method {method.name}: {method.instructions} instructions")
            lines.append("  inputs: " + (", ".join(value.text for value in method.inputs) or "none"))
            lines.append("  outputs: " + (", ".join(value.text for value in method.outputs) or "none"))
            lines.append(f"  memory: {human_size(sum(method.memory))}, constants: {human_size(method.constants)}")
            for delegate in method.delegates:
                owner = f"{delegate.distribution} {delegate.version} (API {delegate.api_version})"
                lines.append(f"  delegate {delegate.id}: blob {human_size(delegate.blob_size)}, made by {owner}")
                if delegate.estimate is not None:
                    lines.append(f"    estimated {summary(delegate.estimate)}")
                    lines.extend(f"    {line}" for line in layer_lines(delegate.estimate, every=layers, narrow=narrow))
                if delegate.insides is not None:
                    lines.extend(f"    {line}" for line in operator_lines(delegate.insides, narrow=narrow))
            calls = ", ".join(f"{name} x{count}" for name, count in method.operators.items())
            lines.append(f"  runtime operators: {calls or 'none'}")
        lines.extend(f"segment {item.index}: {item.kind}, {human_size(item.size)}" for item in self.segments)
        if self.data_files:
            names = (f"{name}.ptd" if name else "the .ptd of this file's name" for name in self.data_files)
            lines.append("written with the data files: " + ", ".join(names))
        lines.extend(f"outside: {item}" for item in self.external)
        return "\n".join(lines)


def inspect_data(source: Source) -> DataInspection:
    """Describe a .ptd. Raises FormatError if it is damaged."""
    file = read_ptd(source)
    return DataInspection(
        file.size, tuple(KeyInfo(key, _layout(stored.layout), len(stored.data)) for key, stored in file.items())
    )


def inspect(source: Source, *, operators: bool = False) -> Inspection:
    """Describe a .pte or .bpte; with `operators`, also the operators of its delegates. Raises FormatError.

    Needs neither plugins, their runtimes, nor data files. Only for `operators` the plugins that own the delegates are
    imported; where one cannot tell, `Insides.unknown` says why.
    """
    file = read(source)
    with naming(source):
        validate(file)
    manifest, estimates = read_manifest(file), read_estimates(file)
    plans = file.program.execution_plan or ()
    methods = tuple(_method(file, plan, manifest, estimates, operators) for plan in plans)
    return Inspection(
        size=file.size,
        program_size=file.header.program_size if file.header is not None else file.size,
        producer=manifest.producer,
        methods=methods,
        segments=_segments(file),
        named_data={key: len(data) for key, data in file.named_data.items()},
        external=_external(file, manifest),
        data_files=tuple(manifest.data_files),
        cases=_cases(source),
    )


def _cases(source: Source) -> dict[str, int]:
    view = open_view(source)
    return {name: len(cases) for name, cases in read_bundle(view).cases.items()} if is_bundle(view) else {}


def _external(file: PteFile, manifest: Manifest) -> tuple[KeyInfo, ...]:
    found: dict[str, KeyInfo] = {}
    for plan in file.program.execution_plan or ():
        for value in plan.values or ():
            tensor = value.val
            if isinstance(tensor, schema.Tensor) and tensor.extra_tensor_info is not None and is_external(tensor):
                key = str(tensor.extra_tensor_info.fully_qualified_name)
                found[key] = KeyInfo(key, _layout(tensor), tensor.nbytes)
    for keys in manifest.data_files.values():
        found.update({key: KeyInfo(key, _layout(None), None) for key in keys})
    return tuple(found.values())


def _layout(tensor: schema.Tensor | TensorLayout | None, axes: Sequence[int | Axis] | None = None) -> str:
    """The tensor in words; `axes` says which of its sizes change, where that is known."""
    if tensor is None:
        return "data of a backend"
    # Data files have fixed sizes only.
    bound = isinstance(tensor, schema.Tensor) and tensor.shape_dynamism != schema.TensorShapeDynamism.STATIC
    changing = [bound] * len(tensor.sizes or ()) if axes is None else [isinstance(size, Axis) for size in axes]
    sizes = (f"<={size}" if changes else str(size) for size, changes in zip(tensor.sizes or (), changing, strict=True))
    return f"{_type_name(tensor)}[{', '.join(sizes)}]"


def _method(
    file: PteFile, plan: schema.ExecutionPlan, manifest: Manifest, estimates: Estimates, with_insides: bool
) -> MethodInfo:
    name = str(plan.name)
    values = [value.val for value in plan.values or ()]
    calls = [step.instr_args for chain in plan.chains or () for step in chain.instructions or ()]
    operators = plan.operators or []
    counts = Counter(operators[call.op_index].full_name for call in calls if isinstance(call, schema.KernelCall))
    constants = {
        value.data_buffer_idx: value.nbytes
        for value in values
        if isinstance(value, schema.Tensor)
        and value.data_buffer_idx
        and value.allocation_info is None
        and not is_external(value)
    }
    delegates = []
    for index, delegate in enumerate(plan.delegates or ()):
        owner = manifest.owner(name, index)
        inside = insides(file, delegate, owner, name) if with_insides else None
        delegates.append(_delegate(file, delegate, owner, estimates.of(name, index), inside))
    return MethodInfo(
        name=name,
        inputs=_inputs([values[index] for index in plan.inputs or ()], manifest.axes.get(name, ())),
        outputs=tuple(_value(values[index]) for index in plan.outputs or ()),
        delegates=tuple(delegates),
        operators=dict(counts.most_common()),
        instructions=len(calls),
        memory=tuple(plan.non_const_buffer_sizes or ())[1:],
        constants=sum(constants.values()),
    )


def _inputs(values: Sequence[Any], axes: InputAxes) -> tuple[ValueInfo, ...]:
    shapes = [value.sizes or () if isinstance(value, schema.Tensor) else None for value in values]
    known = fitting_axes(axes, shapes) or (None,) * len(values)
    return tuple(_value(value, sizes) for value, sizes in zip(values, known, strict=True))


def _value(value: Any, sizes: Sequence[int | Axis] | None = None) -> ValueInfo:
    if isinstance(value, schema.Tensor):
        return ValueInfo(_layout(value, sizes), value.nbytes)
    content = next(iter(vars(value).values()), None)
    return ValueInfo(f"{type(value).__name__}({content!r})", 0)


def _type_name(tensor: schema.Tensor | TensorLayout) -> str:
    """PyTorch's name of the element type; the format's own where PyTorch has none."""
    dtype = TORCH_DTYPES.get(schema.ScalarType(tensor.scalar_type))
    if dtype is None:
        return schema.ScalarType(tensor.scalar_type).name.lower()
    return str(dtype).removeprefix("torch.")


def _delegate(
    file: PteFile,
    delegate: schema.BackendDelegate,
    owner: Owner,
    estimate: Estimate | None,
    inside: Insides | None,
) -> DelegateInfo:
    return DelegateInfo(
        id=str(delegate.id),
        blob_size=len(file.delegate_blob(delegate)),
        compile_specs=tuple(str(spec.key) for spec in delegate.compile_specs or ()),
        distribution=owner.distribution,
        version=owner.version,
        api_version=owner.api_version,
        estimate=estimate,
        insides=inside,
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
