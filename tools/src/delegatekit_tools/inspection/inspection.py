"""Describes a .pte without running it: methods, delegates and their owners, operators, memory, segments; and a .ptd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from delegatekit.files import Source, open_view
from delegatekit.pte import PteFile, TensorLayout, is_bundle, read_ptd, schema
from delegatekit.reading import FileDelegate, FileMethod, FileProgram, FileValue, Owner, dtype_name, open_program
from delegatekit_api.devices import Estimate
from delegatekit_toolkit.number_text import human_size

from ..bundles import read_bundle
from ..releases import installed_version
from ..text import layer_lines, summary
from .insides import Insides, insides
from .operators import operator_lines

#: The type of an entry of a data file that is no tensor.
_OF_A_BACKEND: Final = "data of a backend"
#: The kind of segments with named data; the name follows.
_NAMED: Final = "named data"
#: Entries of data files that are listed unless all are asked for.
_MOST_OUTSIDE: Final = 10


@dataclass(frozen=True)
class ValueInfo:
    """An input or output: "float32[1, 3, 224, 224]", or kind and value if it is not a tensor.

    Sizes that may change from call to call are shown as upper bounds: "float32[<=8, 3, 32]". Of files of other writers,
    and of outputs, only the fact that some size changes is known: "float32[<=8, <=3, <=32]".
    """

    text: str
    #: Bytes; 0 for values that are not tensors.
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
    #: Its expected cost on its device.
    estimate: Estimate | None = None
    #: Its operators, if requested.
    insides: Insides | None = None
    #: The release of its maker that is installed here; None if there is none.
    installed: str | None = None

    @property
    def maker(self) -> str:
        """Who made it, and which release of that is here if it is another one."""
        made = f"{self.distribution} {self.version} (API {self.api_version})"
        if self.distribution == Owner().distribution or self.installed == self.version:
            return made
        return f"{made}, of which {self.installed or 'no release'} is installed here"


@dataclass(frozen=True)
class MethodInfo:
    """One method. `memory` lists the planned buffers in bytes, `constants` the bytes of its constants."""

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
    """A data segment: its contents and size in bytes."""

    index: int
    kind: str
    size: int


@dataclass(frozen=True)
class KeyInfo:
    """The value of a key of a data file: "float32[8, 4]", or "data of a backend"."""

    key: str
    text: str
    #: Bytes; None for a backend's data that is not in the inspected file.
    size: int | None

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" + (f", {human_size(self.size)}" if self.size is not None else "")


@dataclass(frozen=True)
class DataInspection:
    """The contents of a data file (.ptd)."""

    size: int
    keys: tuple[KeyInfo, ...]

    def __str__(self) -> str:
        return "\n".join([f"{human_size(self.size)}, {len(self.keys)} keys", *map(str, self.keys)])


@dataclass(frozen=True)
class Inspection:
    """The contents of a file. `producer` is the tool that wrote it, if recorded."""

    size: int
    program_size: int
    producer: str
    methods: tuple[MethodInfo, ...]
    segments: tuple[SegmentInfo, ...]
    named_data: Mapping[str, int]
    #: The entries that the program needs from data files.
    external: tuple[KeyInfo, ...] = ()
    #: Names of the data files that were written with it, without ".ptd"; "" is the one named like the .pte.
    data_files: tuple[str, ...] = ()
    #: Of a bundle: method -> number of its cases.
    cases: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, layers: bool = False, narrow: bool = False, every: bool = False) -> str:
        """The inspection as text; with `layers`, all layers of estimates instead of the longest.

        With `every`, each segment and each entry of data files is a line; without it those of a kind share one. If
        `narrow`, layers and operators are shown in short lines instead of a table.
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
                size = human_size(delegate.blob_size)
                lines.append(f"  delegate {delegate.id}: blob {size}, made by {delegate.maker}")
                if delegate.estimate is not None:
                    lines.extend(f"    estimated {text}" for text in [summary(delegate.estimate)] if text)
                    lines.extend(f"    {line}" for line in layer_lines(delegate.estimate, every=layers, narrow=narrow))
                if delegate.insides is not None:
                    lines.extend(f"    {line}" for line in operator_lines(delegate.insides, narrow=narrow))
            calls = ", ".join(f"{name} x{count}" for name, count in method.operators.items())
            lines.append(f"  runtime operators: {calls or 'none'}")
        lines.extend(self._segments(every))
        if self.data_files:
            names = (f"{name}.ptd" if name else "the .ptd of this file's name" for name in self.data_files)
            lines.append("written with the data files: " + ", ".join(names))
        shown = self.external if every or len(self.external) <= _MOST_OUTSIDE else self.external[:_MOST_OUTSIDE]
        lines.extend(f"outside: {item}" for item in shown)
        if len(shown) < len(self.external):
            lines.append(f"outside: {len(self.external) - len(shown)} more (`inspect --all` shows them)")
        return "\n".join(lines)

    def _segments(self, every: bool) -> Iterator[str]:
        if every:
            yield from (f"segment {item.index}: {item.kind}, {human_size(item.size)}" for item in self.segments)
            return
        kinds: dict[str, list[int]] = {}
        for item in self.segments:
            kind = _NAMED if item.kind.startswith(_NAMED) else item.kind
            kinds.setdefault(kind, []).append(item.size)
        if kinds:
            said = (
                f"{kind} {human_size(sum(sizes))}" + f" ({len(sizes)})" * (len(sizes) > 1)
                for kind, sizes in kinds.items()
            )
            yield f"{len(self.segments)} segments: {', '.join(said)}"


def inspect_data(source: Source) -> DataInspection:
    """Describe a .ptd. Raises FormatError if it is damaged."""
    file = read_ptd(source)
    return DataInspection(
        file.size, tuple(KeyInfo(key, _layout(stored.layout), len(stored.data)) for key, stored in file.items())
    )


def _layout(tensor: TensorLayout | None) -> str:
    if tensor is None:
        return _OF_A_BACKEND
    return f"{dtype_name(tensor.scalar_type)}[{', '.join(map(str, tensor.sizes or ()))}]"


def inspect(source: Source, *, operators: bool = False) -> Inspection:
    """Describe a .pte or .bpte; with `operators`, also the operators of its delegates. Raises FormatError.

    Needs neither plugins, their runtimes, nor data files. Only for `operators` the plugins that own the delegates are
    imported; where one cannot decode a blob, `Insides.unknown` says why.
    """
    program = open_program(source)
    header = program.file.header
    return Inspection(
        size=program.size,
        program_size=header.program_size if header is not None else program.size,
        producer=program.producer,
        methods=tuple(_method(program, method, operators) for method in program.methods.values()),
        segments=_segments(program.file),
        named_data={key: len(data) for key, data in program.named_data.items()},
        external=_external(program),
        data_files=tuple(program.data_files),
        cases=_cases(source),
    )


def _cases(source: Source) -> dict[str, int]:
    view = open_view(source)
    return {name: len(cases) for name, cases in read_bundle(view).cases.items()} if is_bundle(view) else {}


def _external(program: FileProgram) -> tuple[KeyInfo, ...]:
    found: dict[str, KeyInfo] = {}
    for method in program.methods.values():
        found.update({value.key: KeyInfo(value.key, str(value), value.size) for value in method.values if value.key})
    for keys in program.data_files.values():
        found.update({key: KeyInfo(key, _OF_A_BACKEND, None) for key in keys})
    return tuple(found.values())


def _method(program: FileProgram, method: FileMethod, with_insides: bool) -> MethodInfo:
    counts = Counter(item.calls for item in method.instructions if item.is_kernel)
    constants = {value.constant: value.size for value in method.values if value.constant}
    return MethodInfo(
        name=method.name,
        inputs=tuple(_value(method.values[index]) for index in method.inputs),
        outputs=tuple(_value(method.values[index]) for index in method.outputs),
        delegates=tuple(
            _delegate(item, insides(item, program.named_data) if with_insides else None) for item in method.delegates
        ),
        operators=dict(counts.most_common()),
        instructions=len(method.instructions),
        memory=method.memory,
        constants=sum(constants.values()),
    )


def _value(value: FileValue) -> ValueInfo:
    return ValueInfo(str(value), value.size)


def _delegate(delegate: FileDelegate, inside: Insides | None) -> DelegateInfo:
    return DelegateInfo(
        id=delegate.id,
        blob_size=len(delegate.blob),
        compile_specs=tuple(spec.key for spec in delegate.compile_specs),
        distribution=delegate.owner.distribution,
        version=delegate.owner.version,
        api_version=delegate.owner.api_version,
        estimate=delegate.estimate,
        insides=inside,
        installed=installed_version(delegate.owner.distribution),
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
        kinds.setdefault(named.segment_index, []).append(f"{_NAMED} {str(named.key)[:24]}")
    return tuple(
        SegmentInfo(index, " and ".join(dict.fromkeys(kinds.get(index, ["unused"]))), len(segment))
        for index, segment in enumerate(file.segments)
    )
