"""The reference backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from delegatekit_api import (
    ApiVersion,
    BackendDescription,
    BackendOptions,
    DelegateRuntime,
    Partitioner,
    PartitionProgram,
    PreprocessResult,
    hookimpl,
)
from delegatekit_api.documentation import BackendDocumentation

from .options import ReferenceOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delegatekit_api.blobs import BlobOperator
    from delegatekit_api.quantization import QuantizationScheme

_DISTRIBUTION = "delegatekit-reference"


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="reference",
        delegate_id="ReferenceBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="runs with PyTorch, operator by operator: for tests, and to debug lowering without hardware",
        api_version=ApiVersion(2, 2),
        options=ReferenceOptions,
        supports_dynamic_shapes=True,
        integrity_check=True,
    )


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The list of operators as a partitioner."""
    from .support import ReferencePartitioner

    return ReferencePartitioner(cast(ReferenceOptions, options))


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Write the partition down as a list of steps."""
    from .compile import compile_partition

    return compile_partition(partition.view)


@hookimpl
def quantization_schemes() -> Sequence[QuantizationScheme]:
    """None: a quantized program runs as what it says, quantize and dequantize included, on core's own operators."""
    return ()


@hookimpl
def create_runtime() -> DelegateRuntime:
    """PyTorch itself."""
    from .runtime import ReferenceRuntime

    return ReferenceRuntime()


@hookimpl
def blob_operators(blob: memoryview) -> Sequence[BlobOperator]:
    """The steps."""
    from .blob.operators import operators

    return operators(blob)


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators."""
    from delegatekit_toolkit.documentation import operator_table

    from .support import TABLE

    return BackendDocumentation(operator_table({"conditions": TABLE}))
