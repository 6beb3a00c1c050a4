"""The XNNPACK backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

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

from .options import XnnpackOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delegatekit_api.blobs import BlobOperator
    from delegatekit_api.quantization import QuantizationScheme

_DISTRIBUTION = "delegatekit-xnnpack"


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="xnnpack",
        delegate_id="XnnpackBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="CPU inference on Arm, x86, WebAssembly and RISC-V (float32, float16, int8)",
        api_version=ApiVersion(2, 2),
        options=XnnpackOptions,
        supports_dynamic_shapes=True,
        # XNNPACK's kernels load whole vectors and may read so many bytes after the end of an input.
        overread_bytes=64,
    )


@hookimpl
def compute_precision(options: BackendOptions) -> str:
    """Weights that are stored as float16 are rounded before they are multiplied in float32."""
    return "float16" if cast(XnnpackOptions, options).weights == "float16" else "float32"


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table as a partitioner."""
    from .support import XnnpackPartitioner

    return XnnpackPartitioner(cast(XnnpackOptions, options))


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Compile a partition."""
    from .compile import compile_partition

    return compile_partition(partition, cast(XnnpackOptions, options))


@hookimpl
def quantization_schemes() -> Sequence[QuantizationScheme]:
    """Static and dynamic int8, int4 weights."""
    from .schemes import SCHEMES

    return SCHEMES


@hookimpl
def create_runtime() -> DelegateRuntime:
    """XNNPACK itself, through the stock ExecuTorch library."""
    from .runtime import XnnpackRuntime

    return XnnpackRuntime()


@hookimpl
def blob_operators(blob: memoryview) -> Sequence[BlobOperator]:
    """The nodes of the graph."""
    from .blob.operators import operators

    return operators(blob)


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators and their conditions."""
    from delegatekit_toolkit.documentation import operator_table

    from .support import TABLE

    return BackendDocumentation(operator_table({"conditions": TABLE}))
