"""The VGF backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, Availability, BackendDescription, hookimpl
from delegatekit_api.documentation import BackendDocumentation
from delegatekit_toolkit.hooks import lazy_hook

from .options import VgfOptions

_DISTRIBUTION = "delegatekit-vgf"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="vgf",
        delegate_id="VgfBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Arm's VGF files for Vulkan's ML extensions (float32, float16, int8, int16)",
        api_version=ApiVersion(2, 4),
        options=VgfOptions,
        # It keeps a process of the reference model from program to program, and ends with its own.
        isolated_runtime=True,
    )


@hookimpl
def compiler_version() -> str:
    """The version of the model converter."""
    from .compiler import converter_version

    return converter_version()


@hookimpl
def compiler_availability() -> Availability:
    """The availability of the model converter."""
    from .compiler import availability

    return availability()


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators with their conditions: on numbers, and of quantized programs on integers."""
    from delegatekit_toolkit.operator_tables import operator_table

    from .support import INTEGER_TABLE, TABLE

    return BackendDocumentation(
        operator_table({"on numbers": TABLE, "on quantized integers": INTEGER_TABLE}, lacking="no")
    )


targets = lazy_hook("targets", "delegatekit_vgf.targets:list_targets")
create_partitioner = lazy_hook("create_partitioner", "delegatekit_vgf.support:VgfPartitioner")
preprocess = lazy_hook("preprocess", "delegatekit_vgf.compile:compile_partition")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_toolkit.tosa.lowering.schemes:SCHEMES")
create_runtime = lazy_hook("create_runtime", "delegatekit_vgf.runtime:VgfRuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_vgf.blob.operators:operators")
