"""The QNN backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from delegatekit_api import (
    ApiVersion,
    Availability,
    BackendDescription,
    BackendOptions,
    DelegateRuntime,
    Partitioner,
    PartitionProgram,
    PreprocessResult,
    hookimpl,
)
from delegatekit_api.documentation import BackendDocumentation

from .options import QnnOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delegatekit_api.devices import TargetInfo
    from delegatekit_api.quantization import QuantizationScheme

_DISTRIBUTION = "delegatekit-qnn"


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="qnn",
        delegate_id="QnnBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Qualcomm's Hexagon Tensor Processor through QNN (quantized, float16)",
        api_version=ApiVersion(2, 0),
        options=QnnOptions,
        compute_precision="float16",
        isolated_runtime=True,
        integrity_check=True,
    )


@hookimpl
def targets() -> Sequence[TargetInfo]:
    """Chips."""
    from .targets import list_targets

    return list_targets()


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table as a partitioner."""
    from .support import QnnPartitioner

    return QnnPartitioner(cast(QnnOptions, options))


@hookimpl
def compiler_version(options: BackendOptions) -> str:
    """The version of Qualcomm's library."""
    from .blob.installation import Missing, find_installation

    found = find_installation()
    return "unknown" if isinstance(found, Missing) else f"QNN {found.version}"


@hookimpl
def compiler_availability(options: BackendOptions) -> Availability:
    """Whether Qualcomm's library and ExecuTorch's binding are here and work: another process loads them."""
    from .compiler.conversation import availability

    return availability(cast(QnnOptions, options))


@hookimpl
def compiles_together(options: BackendOptions) -> bool:
    """Only where methods share weights."""
    return cast(QnnOptions, options).weight_sharing


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Compile a partition."""
    from .compile import compile_partition

    return compile_partition(partition, cast(QnnOptions, options))


@hookimpl
def preprocess_methods(
    methods: Mapping[str, Sequence[PartitionProgram]], options: BackendOptions
) -> Mapping[str, Sequence[PreprocessResult]]:
    """Compile all partitions: those of several methods share weights."""
    from .compile import compile_methods

    return compile_methods(methods, cast(QnnOptions, options))


@hookimpl
def quantization_schemes(options: BackendOptions) -> Sequence[QuantizationScheme]:
    """What the processor computes with."""
    from .schemes import schemes

    return schemes(cast(QnnOptions, options))


@hookimpl
def create_runtime() -> DelegateRuntime:
    """ExecuTorch's own runtime on the vendor's simulator."""
    from .runtime import QnnRuntime

    return QnnRuntime()


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators and their conditions."""
    from delegatekit_toolkit.documentation import operator_table

    from .support import TABLE

    return BackendDocumentation(operator_table({"conditions": TABLE}))
