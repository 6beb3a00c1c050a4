"""Compiles one partition to a delegate: TOSA, compiled, packed, with data for inspection and host verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delegatekit_api import (
    Call,
    CompileSpec,
    LoweringError,
    NamedData,
    PartitionProgram,
    PreprocessResult,
    ProgramView,
)
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa.lowering.program import ProgramBuilder
from delegatekit_toolkit.tosa.lowering.support import lower_unit, unit_rules
from delegatekit_toolkit.tosa.lowering.values import INTEGERS, Value
from delegatekit_toolkit.tosa.lowering.ways import CountCycles
from delegatekit_toolkit.units import Units

from .blob import TARGET_SPEC, TOSA_SPEC, VELA_SPEC, pack, tosa_key
from .compiler import compile_program
from .ir.emission import VelaProgram
from .options import EthosUOptions
from .runtime.verification import check_commands, check_numbers
from .targets import TARGETS


def compile_partition(partition: PartitionProgram, options: EthosUOptions) -> PreprocessResult:
    """Lower, compile and pack a partition.

    Debug ids are names of TOSA tensors, as in Vela's estimates. Raises LoweringError if Vela refuses the program.
    """

    def cycles(graph: tosa.Graph) -> int | None:
        try:
            return compile_program(tosa.write(graph), options).performance.cycles
        except LoweringError:
            return None

    lowered = build_graph(partition.view, options.target, cycles)
    program = tosa.write(lowered.graph)
    compiled = compile_program(program, options)
    wanted, found = len(lowered.graph.outputs), len(compiled.outputs)
    if wanted != found:
        raise LoweringError(f"the compiled program has {found} of {wanted} outputs", where=f"Vela, {options.target}")
    blob = pack(compiled)
    check_commands(blob, TARGETS[options.target])
    if options.verify:
        check_numbers(blob, program, TARGETS[options.target])
    specs = [
        CompileSpec(TARGET_SPEC, options.target.encode()),
        CompileSpec(VELA_SPEC, compiled.vela_version.encode()),
    ]
    sidecar: tuple[NamedData, ...] = ()
    if options.keep_tosa:
        key = tosa_key(program)
        specs.append(CompileSpec(TOSA_SPEC, key.encode()))
        sidecar = (NamedData(key, program),)
    estimate = compiled.performance.estimate(compiled.vela_version)
    return PreprocessResult(blob, tuple(specs), sidecar, lowered.handles, estimate=estimate)


@dataclass(frozen=True)
class Lowered:
    """A TOSA graph, and for each of its tensors the debug handles of the nodes that it was made for."""

    graph: tosa.Graph
    handles: Mapping[int | str, tuple[int, ...]]


def build_graph(view: ProgramView, target: str, cycles: CountCycles | None = None) -> Lowered:
    """Lower a partition's program, unit by unit, for an accelerator.

    If there are several ways to lower something, `cycles` (of a graph, None if it cannot be run) decides. Inputs and
    outputs are the partition's integers, in the program's layout. Raises LoweringError for operators that the support
    table refuses.
    """
    device = TARGETS[target]
    b = VelaProgram(view, device, cycles)
    for node in view.inputs:
        operand = view.operand(node)
        if operand.dtype not in INTEGERS:
            message = f"is {operand.dtype}: a delegate exchanges integers and booleans"
            raise LoweringError(message, where=operand.description)
        b.define(operand, Value.dense(b.graph.input(operand.name, operand.shape, INTEGERS[operand.dtype])))
    ends = {end.node: unit for unit in Units(view, unit_rules(device)).units for end in unit.results or (unit.anchor,)}
    for node in view.graph.nodes:
        unit = ends.get(node)
        if unit is not None:
            end = Call(node, view)
            b.begin(unit, end)
            b.define(end.result, lower_unit(b, unit, end))
    outputs = [view.operand(node) for node in view.outputs if node is not None]
    for operand in outputs:
        b.begin_output(operand)
        _output(b, b.integers(operand))
    for place, operand in enumerate(outputs):  # Now their other readers are known.
        b.begin_output(operand)
        if _is_forgotten(b, b.graph.outputs[place]):
            b.graph.outputs[place] = _copied(b, b.graph.outputs[place])
    return Lowered(b.finish(), b.handles)


def _output(b: ProgramBuilder, value: Value) -> None:
    """Outputs are separate tensors, each the result of an operation."""
    tensor = b.contiguous(value)
    taken = tensor in b.graph.inputs or tensor in b.graph.outputs or tensor.data is not None
    b.graph.output(_copied(b, tensor) if taken or _is_forgotten(b, tensor) else tensor)


def _is_forgotten(b: ProgramBuilder, tensor: tosa.Tensor) -> bool:
    """True if Vela (5.1) forgets that a tensor is an output: it is a reshape of something, and others read it."""
    made = b.producer(tensor)
    if made is None or not isinstance(made.operator, tosa.Reshape):
        return False
    return any(tensor is item for operation in b.graph.operations for item in operation.inputs)


def _copied(b: ProgramBuilder, tensor: tosa.Tensor) -> tosa.Tensor:
    return b.emit(tosa.Identity(), (tensor,), tensor.shape, tensor.dtype)
