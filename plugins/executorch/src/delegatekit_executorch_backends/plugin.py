"""The hooks of ExecuTorch's backends: one object for each, which are the entry points of `delegatekit.backends`."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from delegatekit_api import ApiVersion, BackendDescription, hookimpl

from .targets import SYSTEMS, System

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from delegatekit_api import (
        Availability,
        BackendOptions,
        DelegateRuntime,
        Partitioner,
        PartitionProgram,
        PreprocessResult,
    )
    from delegatekit_api.schemes import QuantizationScheme
    from delegatekit_toolkit.rewriting import ProgramPass

_DISTRIBUTION = "delegatekit-executorch-backends"


class StockBackend:
    """The hooks of one of ExecuTorch's backends. Its delegates run on the runtime of another plugin of their id."""

    def __init__(self, system: System) -> None:
        self._system = system

    @hookimpl
    def describe_backend(self) -> BackendDescription:
        """The facts about the backend."""
        system = self._system
        return BackendDescription(
            name=system.name,
            delegate_id=system.delegate_id,
            distribution=_DISTRIBUTION,
            version=version(_DISTRIBUTION),
            summary=f"ExecuTorch's own backend: {system.summary}",
            api_version=ApiVersion(2, 4),
            options=system.options,
            compute_precision=system.compute_precision,
            supports_dynamic_shapes=system.dynamic,
            overread_bytes=system.overread_bytes,
            isolated_compiler=system.isolated,
            isolated_runtime=system.isolated,
            runs_any_maker=False,
        )

    @hookimpl
    def compiler_availability(self) -> Availability:
        """Check for ExecuTorch and for what the backend needs besides."""
        return self._system.availability()

    @hookimpl
    def create_partitioner(self, options: BackendOptions) -> Partitioner:
        """ExecuTorch's partitioner as one of ours."""
        from .support import StockPartitioner

        return StockPartitioner(self._system, options)

    @hookimpl
    def quantization_schemes(self, options: BackendOptions) -> Sequence[QuantizationScheme]:
        """ExecuTorch's quantizers for the backend."""
        from .schemes import schemes

        return schemes(self._system, options)

    @hookimpl
    def create_quantizer(self, scheme: str, options: BackendOptions) -> Any:
        """ExecuTorch's quantizer for a scheme."""
        from .schemes import quantizer

        return quantizer(self._system, scheme, options)

    @hookimpl
    def passes(self) -> Sequence[ProgramPass]:
        """Numbers beside tensors become constants, as in ExecuTorch's export."""
        from .passes import NumbersAsConstants

        return (NumbersAsConstants(),)

    @hookimpl
    def preprocess(self, partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
        """Compile a partition by ExecuTorch's compiler."""
        from .compile import compile_partition

        return compile_partition(self._system, partition, options)


class RunningStockBackend(StockBackend):
    """The hooks of a backend whose delegate the stock runtime of this host has."""

    @hookimpl
    def create_runtime(self) -> DelegateRuntime:
        """The stock runtime."""
        from .runtime import StockRuntime

        return StockRuntime(self._system)


def _hooks(name: str) -> StockBackend:
    system = SYSTEMS[name]
    return RunningStockBackend(system) if system.runs_in_stock else StockBackend(system)


cadence = _hooks("executorch.cadence")
coreai = _hooks("executorch.coreai")
coreml = _hooks("executorch.coreml")
cuda = _hooks("executorch.cuda")
ethosu = _hooks("executorch.ethosu")
example = _hooks("executorch.example")
mediatek = _hooks("executorch.mediatek")
metal = _hooks("executorch.metal")
mlx = _hooks("executorch.mlx")
mps = _hooks("executorch.mps")
native = _hooks("executorch.native")
nxp = _hooks("executorch.nxp")
openvino = _hooks("executorch.openvino")
qnn = _hooks("executorch.qnn")
samsung = _hooks("executorch.samsung")
tosa = _hooks("executorch.tosa")
vgf = _hooks("executorch.vgf")
vulkan = _hooks("executorch.vulkan")
webgpu = _hooks("executorch.webgpu")
xnnpack = _hooks("executorch.xnnpack")
