"""The XNNPACK backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import XnnpackOptions

_DISTRIBUTION = "delegatekit-xnnpack"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="xnnpack",
        delegate_id="XnnpackBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="CPU inference on Arm, x86, WebAssembly and RISC-V (float32, float16, int8)",
        api_version=ApiVersion(2, 4),
        options=XnnpackOptions,
        supports_dynamic_shapes=True,
        # XNNPACK's kernels load whole vectors and may read so many bytes after the end of an input.
        overread_bytes=64,
    )


@hookimpl
def compute_precision(options: XnnpackOptions) -> str:
    """Weights that are stored as float16 are rounded before they are multiplied in float32."""
    return "float16" if options.weights == "float16" else "float32"


create_partitioner = lazy_hook("create_partitioner", "delegatekit_xnnpack.support:XnnpackPartitioner")
preprocess = lazy_hook("preprocess", "delegatekit_xnnpack.compile:compile_partition")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_xnnpack.schemes:SCHEMES")
create_runtime = lazy_hook("create_runtime", "delegatekit_xnnpack.runtime:XnnpackRuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_xnnpack.blob.operators:operators")
documentation = lazy_documentation("delegatekit_xnnpack.support:TABLE")
