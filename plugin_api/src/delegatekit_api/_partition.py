"""The input and the output of a backend's `preprocess`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from ._estimate import Estimate
    from ._program import ProgramView

#: Bytes of a blob or of named data: raw, or a tensor that the file writer streams from its own storage (a strided
#: view is made contiguous only while it is written).
Data = Union[bytes, bytearray, memoryview, "torch.Tensor"]


@dataclass(frozen=True)
class CompileSpec:
    """A key and bytes that the .pte hands to the delegate's runtime beside the blob."""

    key: str
    value: bytes


@dataclass(frozen=True)
class NamedData:
    """Data that the runtime looks up by key. Equal keys must mean equal bytes: core stores each key once per file."""

    key: str
    data: Data
    #: Alignment in the file, in bytes: a power of two.
    alignment: int = 16


@dataclass(frozen=True)
class PartitionProgram:
    """One partition, self-contained: the unit that `preprocess` compiles.

    The delegate is called with `view.inputs` in order, followed by one tensor for each of `view.outputs`. All inputs
    are tensors: sizes that the program computes are computed from their sizes.
    """

    #: The partition's own program; parameters and constants used inside are placeholders of it, not copies.
    exported_program: ExportedProgram
    #: The same program as a view, with constants resolved.
    view: ProgramView
    #: Position among this backend's partitions of the method.
    index: int

    @property
    def method(self) -> str:
        """Name of the method that the partition belongs to."""
        return self.view.method


@dataclass(frozen=True)
class PreprocessResult:
    """The result of compiling a partition."""

    #: The delegate's payload as the runtime on the device expects it.
    blob: bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]
    compile_specs: tuple[CompileSpec, ...] = ()
    named_data: tuple[NamedData, ...] = ()
    #: Backend-internal id (an instruction, a node of the blob) -> debug handles of the nodes it came from. Ids that are
    #: numbers are in the order of execution.
    debug_handle_map: Mapping[int | str, tuple[int, ...]] = field(default_factory=dict)
    #: The expected cost on its device: `inspect` shows it, and budgets are checked against it.
    estimate: Estimate | None = None
