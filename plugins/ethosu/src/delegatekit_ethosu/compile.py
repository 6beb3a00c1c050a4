"""One partition as a delegate: TOSA, compiled, packed, with what inspection and host verification want to know."""

from __future__ import annotations

from delegatekit_api import CompileSpec, LoweringError, NamedData, PreprocessResult, ProgramView
from delegatekit_toolkit import tosa

from .blob import TOSA_SPEC, pack, tosa_key
from .compiler import compile_program
from .operators import build_graph
from .options import EthosUOptions
from .runtime.verification import check_commands, check_numbers
from .targets import TARGETS

#: Compile specs of the delegate. The runtime on the device reads none of them.
TARGET_SPEC, VELA_SPEC = "target", "vela_version"


def compile_partition(view: ProgramView, options: EthosUOptions) -> PreprocessResult:
    """Lower, compile and pack a partition.

    Debug ids are names of TOSA tensors, as Vela's estimates have them. Raises LoweringError for what Vela refuses.
    """

    def cycles(graph: tosa.Graph) -> int | None:
        try:
            return compile_program(tosa.write(graph), options).performance.cycles
        except LoweringError:
            return None

    target = TARGETS[options.target]
    lowered = build_graph(view, target.family, cycles)
    program = tosa.write(lowered.graph)
    compiled = compile_program(program, options)
    wanted, found = len(lowered.graph.outputs), len(compiled.outputs)
    if wanted != found:
        raise LoweringError(f"the compiled program has {found} of {wanted} outputs", where=f"Vela, {options.target}")
    blob = pack(compiled)
    check_commands(blob, target)
    if options.verify:
        check_numbers(blob, program, target)
    specs = [
        CompileSpec(TARGET_SPEC, options.target.encode()),
        CompileSpec(VELA_SPEC, compiled.vela_version.encode()),
    ]
    sidecar: tuple[NamedData, ...] = ()
    if options.keep_tosa:
        key = tosa_key(program)
        specs.append(CompileSpec(TOSA_SPEC, key.encode()))
        sidecar = (NamedData(key, program),)
    return PreprocessResult(
        blob,
        tuple(specs),
        sidecar,
        lowered.handles,
        estimate=compiled.performance.estimate(compiled.vela_version),
    )
