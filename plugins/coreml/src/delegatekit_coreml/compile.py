"""From a partition to what goes into the file, step by step."""

from __future__ import annotations

from delegatekit_api import CompileSpec, PartitionProgram, PreprocessResult
from delegatekit_api.devices import Estimate

from .blob.package import Package, write_package
from .blob.weights import bytes_by_type
from .compiler import package_of
from .ir.builder import building
from .operators.interface import interface, states
from .operators.program import ProgramBuilder
from .options import CoreMLOptions
from .support import TABLE
from .targets import TARGETS


def compile_partition(partition: PartitionProgram, options: CoreMLOptions) -> PreprocessResult:
    """Lower a partition to MIL, have coremltools write it, pack it. Raises LoweringError."""
    target = TARGETS[options.target]
    inputs = interface(partition.view, options)
    with building(target, inputs, states(partition.view)) as function:
        builder = ProgramBuilder(partition.view, options, function)
        builder.build(TABLE)
        program = function.finish(builder.outputs)
        package = package_of(program, target, {name: item.feature for name, item in inputs.items()})
    names = tuple(value.name for value in builder.outputs)
    pieces = write_package(Package(package.model, package.weights, tuple(inputs), names))
    return PreprocessResult(
        pieces,
        compile_specs=_compile_specs(options),
        debug_handle_map=builder.handles.mapping,
        estimate=Estimate("delegatekit-coreml", storage=_storage(package.weights)),
    )


def _storage(weights: memoryview) -> dict[str, int]:
    """Bytes of the constants in the file, by the types of their elements."""
    return {f"weights {name}": size for name, size in sorted(bytes_by_type(weights).items())}


def _compile_specs(options: CoreMLOptions) -> tuple[CompileSpec, ...]:
    """What stock's lowering says beside the blob; the runtime reads the compute units."""
    return (
        CompileSpec("compute_units", options.compute_units.encode()),
        CompileSpec("min_deployment_target", str(TARGETS[options.target].version).encode()),
        CompileSpec("model_compute_precision", options.precision.encode()),
        CompileSpec("model_type", b"model"),
    )
