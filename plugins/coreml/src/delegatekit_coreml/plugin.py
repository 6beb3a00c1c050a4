"""The Core ML backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from delegatekit_api import ApiVersion, Availability, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_hook
from delegatekit_toolkit.installed import installed

from .options import CoreMLOptions

_DISTRIBUTION = "delegatekit-coreml"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="coreml",
        delegate_id="CoreMLBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="iPhones, iPads, Macs and other devices of Apple through Core ML (float16, float32)",
        api_version=ApiVersion(2, 5),
        options=CoreMLOptions,
        compute_precision="float16",
        supports_dynamic_shapes=True,
        owns_state=True,
    )


@hookimpl
def compute_precision(options: CoreMLOptions) -> str:
    """The precision that float32 is computed in."""
    return options.precision


@hookimpl
def compiler_version() -> str:
    """The version of coremltools, whose builder makes the program."""
    try:
        return f"coremltools {version('coremltools')}"
    except PackageNotFoundError:  # lowering says what to install
        return "unknown"


@hookimpl
def compiler_availability() -> Availability:
    """The availability of coremltools, which is not loaded."""
    return installed("coremltools", "coremltools, which writes the program,", "pip install coremltools")


targets = lazy_hook("targets", "delegatekit_coreml.targets:list_targets")
passes = lazy_hook("passes", "delegatekit_coreml.support:PASSES")
create_partitioner = lazy_hook("create_partitioner", "delegatekit_coreml.support:CoreMLPartitioner")
preprocess_methods = lazy_hook("preprocess_methods", "delegatekit_coreml.compile:compile_methods")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_coreml.schemes:schemes")
create_runtime = lazy_hook("create_runtime", "delegatekit_coreml.runtime:CoreMLRuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_coreml.blob.operators:operators")
documentation = lazy_hook("documentation", "delegatekit_coreml.support:documentation")
