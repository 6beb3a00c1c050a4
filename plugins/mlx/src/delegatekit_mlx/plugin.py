"""The MLX backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import MLXOptions

_DISTRIBUTION = "delegatekit-mlx"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="mlx",
        delegate_id="MLXBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Apple's chips through MLX (float32, float16, bfloat16, integers, weights of 8 and 4 bits)",
        api_version=ApiVersion(2, 4),
        options=MLXOptions,
        supports_dynamic_shapes=True,
        owns_state=True,
        integrity_check=True,
    )


targets = lazy_hook("targets", "delegatekit_mlx.targets:list_targets")
create_partitioner = lazy_hook("create_partitioner", "delegatekit_mlx.support:MLXPartitioner")
preprocess = lazy_hook("preprocess", "delegatekit_mlx.compile:compile_partition")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_mlx.schemes:SCHEMES")
create_runtime = lazy_hook("create_runtime", "delegatekit_mlx.runtime:MLXRuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_mlx.blob.operators:operators")
documentation = lazy_documentation("delegatekit_mlx.support:TABLE")
