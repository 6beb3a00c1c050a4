"""The Core ML backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
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

from .options import CoreMLOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delegatekit_api.blobs import BlobOperator
    from delegatekit_api.devices import TargetInfo
    from delegatekit_api.quantization import QuantizationScheme

_DISTRIBUTION = "delegatekit-coreml"


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="coreml",
        delegate_id="CoreMLBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="iPhones, iPads, Macs and other devices of Apple through Core ML (float16, float32)",
        api_version=ApiVersion(2, 2),
        options=CoreMLOptions,
        compute_precision="float16",
        supports_dynamic_shapes=True,
        owns_state=True,
    )


@hookimpl
def compute_precision(options: BackendOptions) -> str:
    """What float32 is computed in."""
    return cast(CoreMLOptions, options).precision


@hookimpl
def targets() -> Sequence[TargetInfo]:
    """Deployment targets."""
    from .targets import list_targets

    return list_targets()


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table as a partitioner."""
    from .support import CoreMLPartitioner

    return CoreMLPartitioner(cast(CoreMLOptions, options))


@hookimpl
def compiler_version(options: BackendOptions) -> str:
    """The version of coremltools, whose builder makes the program."""
    try:
        return f"coremltools {version('coremltools')}"
    except PackageNotFoundError:  # lowering says what to install
        return "unknown"


@hookimpl
def compiler_availability(options: BackendOptions) -> Availability:
    """Whether coremltools is here; it is not loaded."""
    from delegatekit_toolkit.installed import installed

    return installed("coremltools", "coremltools, which writes the program,", "pip install coremltools")


@hookimpl
def preprocess_methods(
    methods: Mapping[str, Sequence[PartitionProgram]], options: BackendOptions
) -> Mapping[str, Sequence[PreprocessResult]]:
    """Compile all partitions, of which those of several methods may share weights."""
    from .compile import compile_methods

    return compile_methods(methods, cast(CoreMLOptions, options))


@hookimpl
def quantization_schemes(options: BackendOptions) -> Sequence[QuantizationScheme]:
    """What the deployment target has."""
    from .schemes import schemes

    return schemes(cast(CoreMLOptions, options))


@hookimpl
def create_runtime() -> DelegateRuntime:
    """The interpreter of this package."""
    from .runtime import CoreMLRuntime

    return CoreMLRuntime()


@hookimpl
def blob_operators(blob: memoryview, named_data: Mapping[str, memoryview]) -> Sequence[BlobOperator]:
    """The operations of the method's function."""
    from .blob.operators import operators

    return operators(blob, named_data)


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators, their conditions, and the target from which on they are taken."""
    from .support import documented_table

    return BackendDocumentation(documented_table())
