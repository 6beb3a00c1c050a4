"""The Ethos-U backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from delegatekit_api import (
    ApiVersion,
    Availability,
    BackendDescription,
    BackendOptions,
    DelegateRuntime,
    Partitioner,
    PartitionProgram,
    PreprocessResult,
    hookimpl,
)
from delegatekit_api.devices import Verification
from delegatekit_api.documentation import BackendDocumentation

from .options import EthosUOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delegatekit_api.blobs import BlobOperator
    from delegatekit_api.devices import TargetInfo
    from delegatekit_api.quantization import QuantizationScheme

_DISTRIBUTION = "delegatekit-ethosu"
_JUDGE = "Arm's TOSA reference model"


@hookimpl
def describe_backend() -> BackendDescription:
    """Who the backend is."""
    return BackendDescription(
        name="ethosu",
        delegate_id="EthosUBackend",
        distribution=_DISTRIBUTION,
        version=version(_DISTRIBUTION),
        summary="Arm Ethos-U55, U65 and U85 NPUs (int8, int16)",
        api_version=ApiVersion(2, 3),
        options=EthosUOptions,
    )


@hookimpl
def create_partitioner(options: BackendOptions) -> Partitioner:
    """The support table as a partitioner, after a look whether what the options name exists."""
    from .compiler.system import check_names
    from .support import EthosUPartitioner

    chosen = cast(EthosUOptions, options)
    check_names(chosen)
    return EthosUPartitioner(chosen)


@hookimpl
def compiler_version(options: BackendOptions) -> str:
    """Vela's version, and what the configuration file says that the options name."""
    from .compiler.configuration import load_configuration
    from .compiler.vela import vela_version

    chosen = cast(EthosUOptions, options)
    if chosen.config is None:
        return vela_version()
    return f"{vela_version()} {dict(load_configuration(chosen.config).sections)}"


@hookimpl
def compiler_availability(options: BackendOptions) -> Availability:
    """Whether Vela is here, and what the option `verify` needs; neither is loaded."""
    from delegatekit_toolkit.tosa.reference import installation

    from .compiler.vela import availability

    vela = availability()
    return installation() if vela.available and cast(EthosUOptions, options).verify else vela


@hookimpl
def verification(options: BackendOptions) -> Verification:
    """Arm's reference model, if the option `verify` is set."""
    if not cast(EthosUOptions, options).verify:
        return Verification(_JUDGE, False, "the option verify is not set")
    found = compiler_availability(options)
    return Verification(_JUDGE, found.available, found.reason)


@hookimpl
def preprocess(partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """Lower a partition to TOSA, compile it with Vela, pack the result as ExecuTorch's runtime wants it."""
    from .compile import compile_partition

    return compile_partition(partition.view, cast(EthosUOptions, options))


@hookimpl
def quantization_schemes() -> Sequence[QuantizationScheme]:
    """Static int8, and int16 with weights of int8."""
    from .schemes import SCHEMES

    return SCHEMES


@hookimpl
def targets() -> Sequence[TargetInfo]:
    """The accelerators."""
    from .targets import list_targets

    return list_targets()


@hookimpl
def create_runtime() -> DelegateRuntime:
    """The compiled program of a U55 on the host, or the TOSA program in Arm's reference model."""
    from .runtime.host import EthosURuntime

    return EthosURuntime()


@hookimpl
def blob_operators(blob: memoryview, named_data: Mapping[str, memoryview]) -> Sequence[BlobOperator]:
    """The operations of a U55's command stream."""
    from .runtime.stream.inside import operators

    return operators(blob, named_data)


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators with their conditions for each family of accelerators, and what the host executes of a U55."""
    from delegatekit_toolkit.documentation import operator_table

    from .runtime.stream import listing
    from .support import TABLE, TABLE_U85

    executed = f"Everything else in a command stream is refused, with its place and value.\n\n{listing()}"
    return BackendDocumentation(
        operator_table({"Ethos-U55 and U65": TABLE, "Ethos-U85": TABLE_U85}),
        {"Commands of the Ethos-U55 that the host executes": executed},
    )
