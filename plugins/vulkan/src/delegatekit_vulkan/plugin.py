"""The Vulkan backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import VulkanOptions

_DISTRIBUTION = "delegatekit-vulkan"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="vulkan",
        delegate_id="VulkanBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="GPUs of phones and desktops through Vulkan (float32, float16, int8, int4 weights)",
        api_version=ApiVersion(2, 4),
        options=VulkanOptions,
        supports_dynamic_shapes=True,
        owns_state=True,
    )


@hookimpl
def compute_precision(options: VulkanOptions) -> str:
    """With the option fp16 the device keeps float32 as float16."""
    return "float16" if options.fp16 else "float32"


targets = lazy_hook("targets", "delegatekit_vulkan.targets:list_targets")
passes = lazy_hook("passes", "delegatekit_vulkan.support:PASSES")
create_partitioner = lazy_hook("create_partitioner", "delegatekit_vulkan.support:VulkanPartitioner")
preprocess = lazy_hook("preprocess", "delegatekit_vulkan.compile:compile_partition")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_vulkan.schemes:schemes")
create_runtime = lazy_hook("create_runtime", "delegatekit_vulkan.runtime:VulkanRuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_vulkan.blob.operators:operators")
documentation = lazy_documentation("delegatekit_vulkan.support:TABLE")
