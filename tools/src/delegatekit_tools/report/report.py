"""Sums up a lowering: delegates, fallback operators, memory and constants of each method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from delegatekit.emit import Emitted
from delegatekit.lowering import ONLY_TOGETHER, Delegate, Replacement, Shares, is_work, shares_of
from delegatekit.partition import PartitionPlan
from delegatekit.pipeline import LoweredProgram
from delegatekit.pte import OWN_KEYS, PtdImage, data_size, schema
from delegatekit_api.devices import Estimate
from delegatekit_api.nodes import is_dynamic
from delegatekit_toolkit.number_text import human_size

from ..text import summary
from .arenas import ArenaReport
from .special_values import SpecialValues, special_value_lines, special_values


@dataclass(frozen=True)
class DelegateReport:
    """One delegate: its backend, the operators of the edge program that it took, and the size of its blob in bytes.

    Of a backend that is a library of operators: a program of calls, without a blob.
    """

    backend: str
    nodes: int
    blob_size: int
    #: Its expected cost on its device.
    estimate: Estimate | None = None
    #: True if sizes in it change from call to call, which its runtime on the device does not take
    #: (`BackendDescription.device_dynamic_shapes`).
    only_here: bool = False
    #: Kernel name -> number of calls, of a program of operators; empty for a delegate.
    calls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MethodReport:
    """One method: the delegates, the runtime's own operators, and the arena in bytes."""

    name: str
    delegates: tuple[DelegateReport, ...]
    #: Kernel name -> number of calls.
    fallback: Mapping[str, int]
    arena_size: int
    #: The planned memory, space by space.
    arenas: tuple[ArenaReport, ...] = ()
    #: The operators of the edge program.
    operators: int = 0

    @property
    def is_constant(self) -> bool:
        """True if nothing is computed, and no memory planned: the numbers of integer inputs and outputs."""
        return not (self.operators or self.delegates or self.fallback or self.arena_size)

    @property
    def delegated_nodes(self) -> int:
        """Operators of the edge program that delegates compute."""
        return sum(delegate.nodes for delegate in self.delegates)

    @property
    def fallback_calls(self) -> int:
        """Kernel calls outside delegates."""
        return sum(self.fallback.values())


@dataclass(frozen=True)
class Report:
    """The results of a lowering. `stages` are CPU seconds, `constant_size` bytes (before identical ones are merged).

    `shares` has what each backend runs, and what none takes, with the reasons. `named_data_size` are the bytes of the
    backends' named data: DelegateKit's own are not counted.
    """

    methods: tuple[MethodReport, ...]
    shares: Shares
    constant_size: int
    named_data_size: int
    stages: Mapping[str, float]
    #: Data files beside the .pte -> bytes of their data; "" is the one named like the .pte.
    data_files: Mapping[str, int] = field(default_factory=dict)
    #: Chosen backend that took nothing -> the reason, in words.
    idle: Mapping[str, str] = field(default_factory=dict)
    #: Backend -> inputs for which operators of its delegates give other results than PyTorch, and these operators.
    special_values: SpecialValues = field(default_factory=dict)

    def memory(self, *, narrow: bool = False) -> str:
        """The planned memory of each method and space: its size, the bound, and the values in use at the peak.

        If `narrow`, each value gets short lines.
        """
        return "\n".join(line for method in self.methods for line in _memory_lines(method, narrow=narrow))

    def __str__(self) -> str:
        return self.text()

    def text(self, *, idle: bool = True, shares: bool = True) -> str:
        """The report as text; without `idle`, it leaves out the backends that took nothing, and so for `shares`."""
        lines = self.shares.lines() if shares else []
        for method in self.methods:
            if method.is_constant:
                continue
            lines.append(
                f"method {method.name}: {_who(method.delegates)} {method.delegated_nodes} of {method.operators} "
                f"operators, arena {human_size(method.arena_size)}"
            )
            for index, delegate in enumerate(method.delegates):
                operators = "1 operator" if delegate.nodes == 1 else f"{delegate.nodes} operators"
                if delegate.calls:
                    calls = ", ".join(f"{name} x{count}" for name, count in delegate.calls.items())
                    lines.append(f"  program {index}: {delegate.backend}, {operators} as {calls}")
                    continue
                blob = human_size(delegate.blob_size)
                lines.append(f"  delegate {index}: {delegate.backend}, {operators}, blob {blob}")
                if delegate.estimate is not None:
                    lines.extend(f"    estimated {text}" for text in [summary(delegate.estimate)] if text)
                if delegate.only_here:
                    lines.append("    its sizes change from call to call: it runs here, but not on the device")
            if method.fallback:
                calls = ", ".join(f"{name} x{count}" for name, count in method.fallback.items())
                lines.append(f"  runtime operators: {calls}")
        constant = [method.name for method in self.methods if method.is_constant]
        if constant:
            more = f" and {len(constant) - _CONSTANT} more" if len(constant) > _CONSTANT else ""
            lines.append(f"methods that return constants: {', '.join(constant[:_CONSTANT])}{more}")
        if idle:
            lines.extend(f"backend {name} took nothing: {reason}" for name, reason in self.idle.items())
        lines.extend(special_value_lines(self.special_values))
        lines.append(
            f"constants {human_size(self.constant_size)}, named data of backends {human_size(self.named_data_size)}"
        )
        for name, size in self.data_files.items():
            lines.append(f"data file {name + '.ptd' if name else 'of the same name'}: {human_size(size)}")
        lines.append("CPU seconds: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.stages.items()))
        return "\n".join(lines)


def _arenas(emitted: Emitted, method: str) -> tuple[ArenaReport, ...]:
    placed = emitted.placed.get(method, ())
    return tuple(
        ArenaReport.of(space, [item.value for item in placed if item.memory_id == space.memory_id])
        for space in emitted.spaces.get(method, ())
    )


def report(program: LoweredProgram) -> Report:
    """The delegates of a lowered program, the operators left to the runtime, and the needs of its file."""
    methods, image = program.methods, program.image
    reports = []
    for (name, method), plan in zip(methods.items(), image.plans, strict=True):
        delegates = tuple(map(_part, method.parts))
        arena_size = sum(plan.non_const_buffer_sizes or ())
        arenas = _arenas(program.emitted, name)
        count = shares_of({name: program.partitioned[name]}).total.operators
        reports.append(MethodReport(name, delegates, _kernel_calls(plan, delegates), arena_size, arenas, count))
    named = {data.key: data_size(data.data) for data in image.named_data if data.key not in OWN_KEYS}
    data_files = {name: _size(content) for name, content in image.data_files.items()}
    constants = sum(map(data_size, image.constants))
    busy = {delegate.backend for found in reports for delegate in found.delegates}
    plans = [plan for method in methods.values() for plan in _plans(method.plan)]
    idle = {name: _why_idle(name, plans) for name in program.backends if name not in busy}
    return Report(
        tuple(reports),
        program.shares,
        constants,
        sum(named.values()),
        dict(program.stages),
        data_files,
        idle,
        special_values(program),
    )


def _size(image: PtdImage) -> int:
    """Bytes of what a data file keeps: what has equal bytes, as tied weights, once."""
    kept = dict(zip(image.contents, image.data, strict=True))
    return sum(data_size(datum.data) for datum in kept.values())


def _plans(plan: PartitionPlan) -> Iterator[PartitionPlan]:
    """The plan of a graph, and those of its control flow."""
    yield plan
    for regions in plan.regions.values():
        for region in regions:
            yield from _plans(region)


def _why_idle(backend: str, plans: Sequence[PartitionPlan]) -> str:
    """The reason that a backend gave for most nodes, of those that it was asked about."""
    answers = [of_node[backend] for plan in plans for of_node in plan.verdicts.values() if backend in of_node]
    if not answers:
        return "nothing was left for it" if any(plan.taker for plan in plans) else "there is nothing to compute"
    reasons = Counter(ONLY_TOGETHER if answer.supported else answer.reason for answer in answers)
    (reason, count), *others = reasons.most_common()
    return reason if not others else f"{reason} ({count} of {len(answers)} operators)"


#: The number of methods that return constants that are named.
_CONSTANT = 3
#: The number of values of a peak that are written out.
_SHOWN = 12
#: Characters of the bar of the largest value.
_BAR = 30


def _memory_lines(method: MethodReport, *, narrow: bool) -> Iterator[str]:
    yield f"method {method.name}: {human_size(method.arena_size)} planned"
    for arena in method.arenas:
        parts = [f"{arena.size} bytes for {arena.values} values", f"least possible {arena.bound}"]
        if arena.bound:
            parts.append(f"{100.0 * arena.excess:+.1f} %")
        if arena.alignment_waste:
            parts.append(f"{arena.alignment_waste} lost to alignment at the peak")
        if arena.overread:
            parts.append(f"{arena.overread} for reads beyond the end")
        yield f"  space {arena.space} (memory_id {arena.memory_id}): {', '.join(parts)}"
        if not arena.peak:
            continue
        yield f"    in use at step {arena.peak_step}:"
        for value in arena.peak[:_SHOWN]:
            bar = "#" * max(1, round(_BAR * value.size / max(1, arena.bound)))
            until = "the end" if value.is_output or value.is_buffer else f"step {value.last}"
            kind = f"{value.dtype}[{','.join(map(str, value.shape))}]"
            size, said = human_size(value.size), f"step {value.first} until {until}"
            writers = f"written by {', '.join(value.writers)}"
            if narrow:
                yield from (f"    {bar}", f"    {size} {value.name} {kind}", f"      {said}", f"      {writers}")
            else:
                yield f"    {bar:<{_BAR}} {size:>10}  {value.name} {kind}, {said}, {writers}"
        if len(arena.peak) > _SHOWN:
            rest = arena.peak[_SHOWN:]
            size = human_size(sum(value.size for value in rest))
            yield f"    {size} {len(rest)} more" if narrow else f"    {'':<{_BAR}} {size:>10}  {len(rest)} more"


def _runs_only_here(delegate: Delegate) -> bool:
    """True if a delegate has sizes that change, and its runtime on the device takes only fixed ones."""
    if delegate.chosen.backend.description.device_dynamic_shapes:
        return False
    return any(is_dynamic(node.meta.get("val")) for node in delegate.partition.nodes)


def _part(part: Delegate | Replacement) -> DelegateReport:
    backend = part.chosen.backend.name
    if isinstance(part, Replacement):
        calls = Counter(call.operator for call in part.program.calls)
        return DelegateReport(backend, sum(map(is_work, part.partition.nodes)), 0, calls=dict(calls.most_common()))
    nodes = sum(map(is_work, (part.original or part).partition.nodes))
    return DelegateReport(backend, nodes, part.blob_size, part.estimate, only_here=_runs_only_here(part))


def _who(parts: Sequence[DelegateReport]) -> str:
    """ "2 delegates run", "1 delegate and 1 program of operators run"."""
    programs = sum(bool(part.calls) for part in parts)
    delegates = len(parts) - programs
    found = [f"{delegates} delegate{'s' * (delegates != 1)}"] if delegates or not programs else []
    if programs:
        found.append(f"{programs} program{'s' * (programs != 1)} of operators")
    return f"{' and '.join(found)} run{'s' * (len(parts) == 1)}"


def _kernel_calls(plan: schema.ExecutionPlan, parts: Sequence[DelegateReport]) -> dict[str, int]:
    """The calls of kernels outside what backends run."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts.subtract(part.calls)
    for chain in plan.chains or ():
        for instruction in chain.instructions or ():
            call = instruction.instr_args
            if isinstance(call, schema.KernelCall):
                kernel = (plan.operators or [])[call.op_index]
                counts[f"{kernel.name}.{kernel.overload}" if kernel.overload else str(kernel.name)] += 1
    return {name: count for name, count in counts.most_common() if count}
