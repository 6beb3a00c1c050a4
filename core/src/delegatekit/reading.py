"""The content of a file, for tools: methods with their values, instructions and delegates. Imports no plugin.

for method in open_program("net.pte").methods.values():
    for delegate in method.delegates:
        print(method.name, delegate.id, len(delegate.blob), delegate.owner.distribution)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from delegatekit_api import CompileSpec
from delegatekit_api.devices import Estimate

from .files import Source
from .pte import PteFile, read, schema
from .pte.axes import Axis, fitting_axes
from .pte.dataflow import callee, calls, effects
from .pte.dtypes import TORCH_DTYPES
from .pte.estimates import Estimates, read_estimates
from .pte.manifest import Manifest, Owner, read_manifest
from .pte.reader import external_key, naming
from .pte.schema import is_external
from .pte.validation import validate

__all__ = [
    "FileDelegate",
    "FileMethod",
    "FileProgram",
    "FileValue",
    "Instruction",
    "Owner",
    "dtype_name",
    "open_program",
]


@dataclass(frozen=True)
class FileValue:
    """A value of a method: a tensor, a number, a string, a list.

    As text "float32[<=8, 3]" ("<=" precedes a size that may change from call to call), or "Int(3)".
    """

    #: The type in the format: "Tensor", "Int", "Double", "Bool", "String", "IntList", ...
    kind: str
    #: Of a tensor: torch's name of its dtype, or the format's own if torch has none.
    dtype: str = ""
    #: Of a tensor: its sizes, the largest if they change.
    shape: tuple[int, ...] = ()
    #: Of a tensor: flags of its changing sizes. Files of other writers only record that some size changes.
    changing: tuple[bool, ...] = ()
    #: Bytes of a tensor at its largest sizes.
    size: int = 0
    #: Of other values: the number, string or list.
    content: Any = None
    #: The number of a constant's data in the file; 0 for other values. Several values may share it.
    constant: int = 0
    #: The key of a constant in a data file; "" for others.
    key: str = ""

    def __str__(self) -> str:
        if self.kind != "Tensor":
            return f"{self.kind}({self.content!r})"
        sizes = (f"<={size}" if bound else str(size) for size, bound in zip(self.shape, self.changing, strict=True))
        return f"{self.dtype}[{', '.join(sizes)}]"


@dataclass(frozen=True)
class FileDelegate:
    """A delegate of a method. `owner` is the plugin that made it, "unknown" in files of other writers."""

    method: str
    index: int
    id: str
    blob: memoryview = field(repr=False)
    compile_specs: tuple[CompileSpec, ...]
    owner: Owner
    #: Its expected cost on its device.
    estimate: Estimate | None

    @property
    def made_by(self) -> str:
        """Its owner, "delegatekit-NAME 0.1.0"; its id if the file does not name the owner."""
        return self.owner.maker(self.id)


@dataclass(frozen=True)
class Instruction:
    """An instruction. Its reads and writes are positions in `FileMethod.values`."""

    #: "aten::add.out", "delegate 0", "MoveCall".
    calls: str
    #: The position in `FileMethod.delegates` of the called delegate.
    delegate: int | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    #: The values written in place; these are among `reads`, too.
    updates: tuple[int, ...]

    @property
    def is_kernel(self) -> bool:
        """True if it calls one of the runtime's own kernels."""
        return "::" in self.calls


@dataclass(frozen=True)
class FileMethod:
    """A method. `inputs` and `outputs` are positions in `values`; `memory` has the bytes of each planned buffer."""

    name: str
    values: tuple[FileValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[FileDelegate, ...]
    memory: tuple[int, ...]


@dataclass(frozen=True)
class FileProgram:
    """A program as stored in its file. `producer` is the tool that wrote it, "unknown" if the file does not name it."""

    methods: Mapping[str, FileMethod]
    producer: str
    #: Bytes of the file.
    size: int
    #: Data of the backends by key.
    named_data: Mapping[str, memoryview] = field(repr=False)
    #: The data files that were written with it, by name without ".ptd" ("" is the one named like the .pte), with
    #: the keys of the backends' data in each.
    data_files: Mapping[str, tuple[str, ...]]
    #: The tables of the format, for data not covered here.
    file: PteFile = field(repr=False)


def open_program(source: Source) -> FileProgram:
    """Open a .pte or .bpte (a path, or bytes) and check it. Data files are not needed.

    Raises FormatError for a damaged file, and MissingFileError for one that does not exist.
    """
    file = read(source)
    with naming(source):
        validate(file)
    manifest, estimates = read_manifest(file), read_estimates(file)
    found = (_method(file, plan, manifest, estimates) for plan in file.program.execution_plan or ())
    return FileProgram(
        {method.name: method for method in found},
        manifest.producer,
        file.size,
        file.named_data,
        manifest.data_files,
        file,
    )


def _method(file: PteFile, plan: schema.ExecutionPlan, manifest: Manifest, estimates: Estimates) -> FileMethod:
    name, tables = str(plan.name), [value.val for value in plan.values or ()]
    values = list(map(_value, tables))
    inputs = tuple(plan.inputs or ())
    given: list[Any] = [tables[index] for index in inputs]
    shapes = [table.sizes or () if isinstance(table, schema.Tensor) else None for table in given]
    for index, axes in zip(inputs, fitting_axes(manifest.axes.get(name, ()), shapes), strict=False):
        values[index] = _value(tables[index], axes)
    return FileMethod(
        name,
        tuple(values),
        inputs,
        tuple(plan.outputs or ()),
        tuple(_instructions(plan, manifest)),
        tuple(
            FileDelegate(
                name,
                index,
                str(delegate.id),
                file.delegate_blob(delegate),
                tuple(CompileSpec(str(spec.key), spec.value or b"") for spec in delegate.compile_specs or ()),
                manifest.owner(name, index),
                estimates.of(name, index),
            )
            for index, delegate in enumerate(plan.delegates or ())
        ),
        tuple(plan.non_const_buffer_sizes or ())[1:],
    )


def _instructions(plan: schema.ExecutionPlan, manifest: Manifest) -> list[Instruction]:
    # One effect more than there are calls reads the outputs.
    told = zip(calls(plan), effects(plan, manifest.outputs_of(str(plan.name))), strict=False)
    return [
        Instruction(
            callee(plan, call),
            call.delegate_index if isinstance(call, schema.DelegateCall) else None,
            (*effect.reads, *effect.through),
            effect.writes,
            effect.updates,
        )
        for call, effect in told
    ]


def _value(table: Any, axes: Sequence[int | Axis] | None = None) -> FileValue:
    if not isinstance(table, schema.Tensor):
        return FileValue(type(table).__name__, content=next(iter(vars(table).values()), None))
    sizes, bound = tuple(table.sizes or ()), table.shape_dynamism != schema.TensorShapeDynamism.STATIC
    changing = (bound,) * len(sizes) if axes is None else tuple(isinstance(size, Axis) for size in axes)
    outside = is_external(table)
    inside = table.allocation_info is None and not outside
    return FileValue(
        "Tensor",
        dtype_name(table.scalar_type),
        sizes,
        changing,
        table.nbytes,
        constant=table.data_buffer_idx if inside else 0,
        key=external_key(table) if outside else "",
    )


def dtype_name(scalar_type: int) -> str:
    """Torch's name of a dtype of the format: "float32"; the format's own if torch has none."""
    dtype = TORCH_DTYPES.get(schema.ScalarType(scalar_type))
    return schema.ScalarType(scalar_type).name.lower() if dtype is None else str(dtype).removeprefix("torch.")
