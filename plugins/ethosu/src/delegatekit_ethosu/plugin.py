"""The Ethos-U backend: its hooks, and nothing else. Entry point of the group `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version

from delegatekit_api import ApiVersion, Availability, BackendDescription, Partitioner, hookimpl
from delegatekit_api.devices import Verification
from delegatekit_api.documentation import BackendDocumentation
from delegatekit_toolkit.hooks import lazy_hook

from .options import EthosUOptions

_DISTRIBUTION = "delegatekit-ethosu"
_JUDGE = "Arm's TOSA reference model"


@hookimpl
def describe_backend() -> BackendDescription:
    """The facts about the backend."""
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
def create_partitioner(options: EthosUOptions) -> Partitioner:
    """The support table as a partitioner, after a look whether what the options name exists."""
    from .compiler.system import check_names
    from .support import EthosUPartitioner

    check_names(options)
    return EthosUPartitioner(options)


@hookimpl
def compiler_version(options: EthosUOptions) -> str:
    """Vela's version, and what the configuration file says that the options name."""
    from .compiler.configuration import load_configuration
    from .compiler.vela import vela_version

    if options.config is None:
        return vela_version()
    return f"{vela_version()} {dict(load_configuration(options.config).sections)}"


@hookimpl
def compiler_availability(options: EthosUOptions) -> Availability:
    """The availability of Vela and of what the option `verify` needs; neither is loaded."""
    from delegatekit_toolkit.tosa.reference import installation

    from .compiler.vela import availability

    vela = availability()
    return installation() if vela.available and options.verify else vela


@hookimpl
def verification(options: EthosUOptions) -> Verification:
    """Arm's reference model, if the option `verify` is set."""
    if not options.verify:
        return Verification(_JUDGE, False, "the option verify is not set")
    found = compiler_availability(options)
    return Verification(_JUDGE, found.available, found.reason)


@hookimpl
def documentation() -> BackendDocumentation:
    """The operators with their conditions for each family of accelerators, and what the host executes of a U55."""
    from delegatekit_toolkit.operator_tables import operator_table

    from .runtime.stream import listing
    from .support import TABLE, TABLE_U85

    executed = f"Everything else in a command stream is refused, with its place and value.\n\n{listing()}"
    return BackendDocumentation(
        operator_table({"Ethos-U55 and U65": TABLE, "Ethos-U85": TABLE_U85}),
        {"Commands of the Ethos-U55 that the host executes": executed},
    )


targets = lazy_hook("targets", "delegatekit_ethosu.targets:list_targets")
preprocess = lazy_hook("preprocess", "delegatekit_ethosu.compile:compile_partition")
quantization_schemes = lazy_hook("quantization_schemes", "delegatekit_toolkit.tosa.lowering.schemes:SCHEMES")
create_runtime = lazy_hook("create_runtime", "delegatekit_ethosu.runtime.host:EthosURuntime")
blob_operators = lazy_hook("blob_operators", "delegatekit_ethosu.runtime.stream.inside:operators")
