"""The Cortex-M backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import CortexMOptions

_DISTRIBUTION = "delegatekit-cortexm"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="cortexm",
        delegate_id="cortex_m",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Arm Cortex-M microcontrollers (int8), by ExecuTorch's operators on CMSIS-NN",
        api_version=ApiVersion(2, 4),
        options=CortexMOptions,
    )


create_partitioner = lazy_hook("create_partitioner", "delegatekit_cortexm.support:CortexMPartitioner")
compiler_availability = lazy_hook("compiler_availability", "delegatekit_cortexm.ir.scratch:availability")
targets = lazy_hook("targets", "delegatekit_cortexm.targets:list_targets")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_cortexm.schemes:SCHEMES")
runtime_operators = lazy_hook("runtime_operators", "delegatekit_cortexm.ir.schemas:SCHEMAS")
replace_operators = lazy_hook("replace_operators", "delegatekit_cortexm.compile:replace_partition")
create_runtime = lazy_hook("create_runtime", "delegatekit_cortexm.runtime.kernels:CortexMRuntime")
documentation = lazy_documentation("delegatekit_cortexm.support:TABLE")
