"""The OpenVINO backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, Availability, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .blob.library import availability, chosen_device, has_device
from .options import OpenVINOOptions

_DISTRIBUTION = "delegatekit-openvino"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="openvino",
        delegate_id="OpenvinoBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Intel's CPUs, GPUs and NPUs through OpenVINO (float32, float16, bfloat16, int8)",
        api_version=ApiVersion(2, 4),
        options=OpenVINOOptions,
        device_compute_precision="bfloat16",
        supports_dynamic_shapes=True,
        device_dynamic_shapes=False,
        owns_state=True,
        integrity_check=True,
    )


@hookimpl
def compute_precision(options: OpenVINOOptions) -> str:
    """The precision that float32 is computed in: NPUs have one only."""
    device = chosen_device(options.device) if availability().available else options.device
    return "float16" if device == "NPU" else options.precision


@hookimpl
def compiler_version(options: OpenVINOOptions) -> str:
    """The version of OpenVINO and the device, for whose instructions it compiles."""
    from .compile import compiler_version as found

    return found(options)


@hookimpl
def compiler_availability(options: OpenVINOOptions) -> Availability:
    """The availability of OpenVINO, and of the device that is compiled for."""
    return has_device(options.device)


targets = lazy_hook("targets", "delegatekit_openvino.targets:list_targets")
create_partitioner = lazy_hook("create_partitioner", "delegatekit_openvino.support:OpenVINOPartitioner")
preprocess = lazy_hook("preprocess", "delegatekit_openvino.compile:compile_partition")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_openvino.schemes:SCHEMES")
create_runtime = lazy_hook("create_runtime", "delegatekit_openvino.runtime:OpenVINORuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_openvino.blob.operators:operators")
documentation = lazy_documentation("delegatekit_openvino.support:TABLE")
