"""The backend of ExecuTorch's operators for language models: its hooks, and nothing else. An entry point.

Its group is `delegatekit.backends`.
"""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import LlamaOptions

_DISTRIBUTION = "delegatekit-llama"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="llama",
        delegate_id="llama",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="attention over a cache (delegatekit_llama.attention), by ExecuTorch's operators for language models",
        api_version=ApiVersion(2, 4),
        options=LlamaOptions,
        supports_dynamic_shapes=True,
    )


create_partitioner = lazy_hook("create_partitioner", "delegatekit_llama.support:create_partitioner")
runtime_operators = lazy_hook("runtime_operators", "delegatekit_llama.ir.schemas:SCHEMAS")
replace_operators = lazy_hook("replace_operators", "delegatekit_llama.compile:replace_partition")
create_runtime = lazy_hook("create_runtime", "delegatekit_llama.runtime.kernels:LlamaRuntime")
documentation = lazy_documentation("delegatekit_llama.support:TABLE")
