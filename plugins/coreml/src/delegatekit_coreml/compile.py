"""Compiles partitions into the content of the file, step by step."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from delegatekit_api import CompileSpec, NamedData, PartitionProgram, PreprocessResult
from delegatekit_api.devices import Estimate
from delegatekit_toolkit.methods import by_position
from delegatekit_toolkit.modules import check_modules

from .blob.debug import debug_files
from .blob.package import Names, Package, identifier_of, write_package
from .blob.reference import Reference, key_of, write_reference
from .blob.weights import bytes_by_type
from .compiler import model_of
from .ir.builder import Input, building
from .ir.tools import tools
from .operators.interface import check_enumerated, interface, states
from .operators.program import ProgramBuilder
from .options import CoreMLOptions
from .support import TABLE
from .targets import IOS18, TARGETS

#: coremltools uses a stack per process: one program at a time.
_LOCK: Final = threading.Lock()


@dataclass(frozen=True)
class _Lowered:
    """Metadata of a MIL function that was lowered from a partition."""

    inputs: Mapping[str, Input]
    names: Names
    handles: Mapping[int | str, tuple[int, ...]]


def _compile_partition(partition: PartitionProgram, options: CoreMLOptions) -> PreprocessResult:
    """Lower a partition to MIL, serialize it with coremltools, pack it. Raises LoweringError."""
    function, lowered = _lowered(partition, options)
    functions = {"main": function}
    del function
    package = _package(functions, {"main": lowered}, options)
    package = replace(package, inputs=lowered.names.inputs, outputs=lowered.names.outputs, methods={})
    others = debug_files(lowered.handles, tools().coremltools.__version__) if options.debug_files else None
    return _result(write_package(package, others), lowered, package, options)


def compile_methods(
    methods: Mapping[str, Sequence[PartitionProgram]], options: CoreMLOptions
) -> dict[str, list[PreprocessResult]]:
    """All partitions of all methods: those at one position are functions of one model, if possible.

    Raises LoweringError, and OptionError for enumerated shapes without a size that changes.
    """
    views = [item.view for items in methods.values() for item in items]
    check_enumerated(options, views)
    for name in ("float32_modules", "unpacked_modules"):
        check_modules(name, getattr(options, name), (call for view in views for call in view.calls()), "coreml")
    shares = options.weight_sharing == "positional" and TARGETS[options.target] >= IOS18

    def compiled(group: Mapping[str, PartitionProgram]) -> dict[str, PreprocessResult]:
        with _LOCK:
            if shares and len(group) > 1:
                return _compile_together(group, options)
            return {name: _compile_partition(item, options) for name, item in group.items()}

    return by_position(methods, compiled)


def _compile_together(
    partitions: Mapping[str, PartitionProgram], options: CoreMLOptions
) -> dict[str, PreprocessResult]:
    """Partitions of several methods as one archive among the named data, and references to it."""
    both = {name: _lowered(item, options) for name, item in partitions.items()}
    functions, lowered = ({name: item[which] for name, item in both.items()} for which in (0, 1))
    del both
    package = _package(functions, lowered, options)
    key = key_of(identifier_of(package))
    data = NamedData(key, b"".join(write_package(package)))
    first = next(iter(lowered))
    return {
        name: replace(
            _result([write_reference(Reference(key, name))], item, package if name == first else None, options),
            named_data=(data,),
        )
        for name, item in lowered.items()
    }


def _lowered(partition: PartitionProgram, options: CoreMLOptions) -> tuple[Any, _Lowered]:
    """The function of MIL, and its metadata."""
    inputs = interface(partition.view, options)
    with building(TARGETS[options.target], inputs, states(partition.view)) as function:
        builder = ProgramBuilder(partition.view, options, function)
        builder.build(TABLE)
        made = function.finish(builder.outputs)
    names = Names(tuple(inputs), tuple(value.name for value in builder.outputs))
    return made, _Lowered(inputs, names, builder.handles.mapping)


def _package(functions: dict[str, Any], lowered: Mapping[str, _Lowered], options: CoreMLOptions) -> Package:
    """The model of some functions, which are consumed."""
    features = {name: {key: value.feature for key, value in item.inputs.items()} for name, item in lowered.items()}
    model, weights = model_of(functions, TARGETS[options.target], features)
    methods = {name: item.names for name, item in lowered.items()}
    return Package(memoryview(model), weights, methods=methods)


def _result(
    pieces: list[bytes | memoryview], lowered: _Lowered, package: Package | None, options: CoreMLOptions
) -> PreprocessResult:
    """`package` is stored with the result, None if another one stores it."""
    return PreprocessResult(
        pieces,
        compile_specs=_compile_specs(options),
        debug_handle_map=lowered.handles,
        estimate=None if package is None else Estimate("delegatekit-coreml", storage=_storage(package.weights)),
    )


def _storage(weights: memoryview) -> dict[str, int]:
    """Bytes of the constants in the file, by the types of their elements."""
    return {f"weights {name}": size for name, size in sorted(bytes_by_type(weights).items())}


def _compile_specs(options: CoreMLOptions) -> tuple[CompileSpec, ...]:
    """The compile specs of stock's lowering; the runtime reads the compute units."""
    return (
        CompileSpec("compute_units", options.compute_units.encode()),
        CompileSpec("min_deployment_target", str(TARGETS[options.target].version).encode()),
        CompileSpec("model_compute_precision", options.precision.encode()),
        CompileSpec("model_type", b"model"),
    )
