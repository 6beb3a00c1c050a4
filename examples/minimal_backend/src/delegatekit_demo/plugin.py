"""The hooks of the backend. Nothing here imports torch before a program is lowered or run."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook

from .options import DemoOptions


@hookimpl
def describe_backend() -> BackendDescription:
    """Name, delegate id and other facts of the backend."""
    return BackendDescription(
        name="demo",
        delegate_id="DemoBackend",
        distribution="delegatekit-demo",
        version=version("delegatekit-demo"),
        summary="adds and multiplies float32 tensors",
        api_version=ApiVersion(2, 0),
        options=DemoOptions,
        integrity_check=True,
    )


create_partitioner = lazy_hook("create_partitioner", "delegatekit_demo.support:partitioner")
preprocess = lazy_hook("preprocess", "delegatekit_demo.compile:compile_partition")
create_runtime = lazy_hook("create_runtime", "delegatekit_demo.runtime:DemoRuntime")
documentation = lazy_documentation("delegatekit_demo.support:TABLE")
