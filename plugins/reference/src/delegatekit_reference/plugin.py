"""The reference backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import ReferenceOptions

if TYPE_CHECKING:
    from delegatekit_api.schemes import QuantizationScheme

_DISTRIBUTION = "delegatekit-reference"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
    return BackendDescription(
        name="reference",
        delegate_id="ReferenceBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="runs with PyTorch, operator by operator: for tests, and to debug lowering without hardware",
        api_version=ApiVersion(2, 2),
        options=ReferenceOptions,
        supports_dynamic_shapes=True,
        integrity_check=True,
    )


@hookimpl
def quantization_schemes() -> Sequence[QuantizationScheme]:
    """None: a quantized program runs as what it says, quantize and dequantize included, on core's own operators."""
    return ()


create_partitioner = lazy_hook("create_partitioner", "delegatekit_reference.support:ReferencePartitioner")
preprocess = lazy_hook("preprocess", "delegatekit_reference.compile:compile_partition")
create_runtime = lazy_hook("create_runtime", "delegatekit_reference.runtime:ReferenceRuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_reference.blob.operators:operators")
documentation = lazy_documentation("delegatekit_reference.support:TABLE")
