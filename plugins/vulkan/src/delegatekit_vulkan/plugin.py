"""The Vulkan backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

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

from .options import VulkanOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delegatekit_api.blobs import BlobOperator
    from delegatekit_api.devices import TargetInfo
    from delegatekit_api.quantization import QuantizationScheme

_DISTRIBUTION = "delegatekit-vulkan"


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="vulkan",
        delegate_id="VulkanBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="GPUs of phones and desktops through Vulkan (float32, float16, int8, int4 weights)",
        api_version=ApiVersion(2, 2),
        options=VulkanOptions,
        supports_dynamic_shapes=True,
        owns_state=True,
    )


@hookimpl
def compute_precision(options: BackendOptions) -> str:
    """With the option fp16 the device keeps float32 as float16."""
    return "float16" if cast(VulkanOptions, options).fp16 else "float32"


@hookimpl
def targets() -> Sequence[TargetInfo]:
    """Classes of devices."""
    from .targets import list_targets

    return list_targets()


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table as a partitioner."""
    from .support import VulkanPartitioner

    return VulkanPartitioner(cast(VulkanOptions, options))


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Compile a partition."""
    from .compile import compile_partition

    return compile_partition(partition, cast(VulkanOptions, options))


@hookimpl
def quantization_schemes() -> Sequence[QuantizationScheme]:
    """int8, and linear layers with weights of 8 or 4 bits."""
    from .schemes import SCHEMES

    return SCHEMES


@hookimpl
def create_runtime() -> DelegateRuntime:
    """The Vulkan device of this machine."""
    from .runtime import VulkanRuntime

    return VulkanRuntime()


@hookimpl
def blob_operators(blob: memoryview) -> Sequence[BlobOperator]:
    """The calls of the graph."""
    from .blob.operators import operators

    return operators(blob)


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators and their conditions."""
    from delegatekit_toolkit.documentation import operator_table

    from .support import TABLE

    return BackendDocumentation(operator_table({"conditions": TABLE}))
