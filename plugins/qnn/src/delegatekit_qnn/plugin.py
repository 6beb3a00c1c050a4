"""The QNN backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import QnnOptions

_DISTRIBUTION = "delegatekit-qnn"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="qnn",
        delegate_id="QnnBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Qualcomm's Hexagon Tensor Processor through QNN (quantized, float16)",
        api_version=ApiVersion(2, 1),
        options=QnnOptions,
        compute_precision="float16",
        isolated_runtime=True,
        integrity_check=True,
    )


@hookimpl
def compiler_version() -> str:
    """The version of Qualcomm's library."""
    from .blob.installation import Missing, find_installation

    found = find_installation()
    return "unknown" if isinstance(found, Missing) else f"QNN {found.version}"


@hookimpl
def compiles_together(options: QnnOptions) -> bool:
    """Only where methods share weights."""
    return options.weight_sharing


targets = lazy_hook("targets", "delegatekit_qnn.targets:list_targets")
passes = lazy_hook("passes", "delegatekit_qnn.support:PASSES")
create_partitioner = lazy_hook("create_partitioner", "delegatekit_qnn.support:QnnPartitioner")
compiler_availability = lazy_hook("compiler_availability", "delegatekit_qnn.compiler.conversation:availability")
preprocess = lazy_hook("preprocess", "delegatekit_qnn.compile:compile_partition")
preprocess_methods = lazy_hook("preprocess_methods", "delegatekit_qnn.compile:compile_methods")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_qnn.schemes:schemes")
create_runtime = lazy_hook("create_runtime", "delegatekit_qnn.runtime:QnnRuntime")
documentation = lazy_documentation("delegatekit_qnn.support:TABLE")
