"""The hooks of the backend. Nothing here imports torch before a program is lowered or run."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from delegatekit_api import ApiVersion, BackendDescription, BackendOptions, hookimpl

from .options import DemoOptions

if TYPE_CHECKING:
    from delegatekit_api import DelegateRuntime, Partitioner, PartitionProgram, PreprocessResult
    from delegatekit_api.documentation import BackendDocumentation


@hookimpl
def describe_backend() -> BackendDescription:
    """Name, delegate id and other facts of the backend."""
    return BackendDescription(
        name="demo",
        delegate_id="DemoBackend",
        distribution="delegatekit-demo",
        version=version("delegatekit-demo"),
        summary="adds and multiplies float32 tensors",
        api_version=ApiVersion(2, 0),
        options=DemoOptions,
        integrity_check=True,
    )


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table, less what the user leaves out."""
    from delegatekit_toolkit.support import TablePartitioner

    from .support import TABLE

    return TablePartitioner(TABLE, leave_out=cast(DemoOptions, options).leave_out, backend="demo")


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Compile one partition."""
    from .compile import compile_partition

    return compile_partition(partition.view)


@hookimpl
def create_runtime() -> DelegateRuntime:
    """The runtime of this process."""
    from .runtime import DemoRuntime

    return DemoRuntime()


@hookimpl
def documentation() -> BackendDocumentation:
    """The table of operators for the documentation."""
    from delegatekit_api.documentation import BackendDocumentation
    from delegatekit_toolkit.documentation import operator_table

    from .support import TABLE

    return BackendDocumentation(operator_table({"conditions": TABLE}))
