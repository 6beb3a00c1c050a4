"""The hooks of the backend. Nothing here imports torch before a program is lowered or run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from delegatekit_api import ApiVersion, BackendDescription, BackendOptions, hookimpl, option

if TYPE_CHECKING:
    from delegatekit_api import DelegateRuntime, Partitioner, PartitionProgram, PreprocessResult


@dataclass(frozen=True)
class DemoOptions(BackendOptions):
    """What a user may choose."""

    leave_out: frozenset[str] = option(
        frozenset(), help='Operators that the backend shall not take: "aten.add.Tensor", "aten.add" or "add".'
    )


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="demo",
        delegate_id="DemoBackend",
        distribution="delegatekit-demo",
        version=version("delegatekit-demo"),
        summary="adds and multiplies float32 tensors",
        api_version=ApiVersion(1, 0),
        options=DemoOptions,
    )


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table, less what the user leaves out."""
    from delegatekit_api import TablePartitioner

    from .support import TABLE

    return TablePartitioner(TABLE, leave_out=cast(DemoOptions, options).leave_out)


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Compile one partition."""
    from .blob import compile_partition

    return compile_partition(partition)


@hookimpl
def create_runtime() -> DelegateRuntime:
    """The runtime of this process."""
    from .runtime import DemoRuntime

    return DemoRuntime()
