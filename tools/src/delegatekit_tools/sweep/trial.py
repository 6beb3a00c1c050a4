"""Makes one row: quantizes if needed, lowers, runs, and compares with eager."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from delegatekit.engine import load
from delegatekit.pipeline import LoweredProgram, lower
from delegatekit.plugins import get_backend
from delegatekit.quantization import quantize
from delegatekit_api import DelegateKitError
from delegatekit_api.nodes import operator_name
from delegatekit_toolkit.accuracy import Order, selection_of

from ..profile import Times, call_times
from ..report import Report, report
from .errors import Compared
from .jobs import AUTO, Job
from .row import COMPILES, FLOAT, REFUSED, TAKES_NOTHING, LeftOut, Row

#: Arguments of a call: by position, and by name.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

#: Calls before those that are timed, and seconds after which no further call begins.
_WARM_UP = 2
_LONGEST = 20.0


def try_job(
    job: Job,
    programs: Mapping[str, ExportedProgram],
    samples: Mapping[str, Sequence[Arguments]],
    calibration: Sequence[tuple[Any, ...]],
) -> Row:
    """The row of a job. `samples` are the arguments for comparing outputs; the first ones are timed.

    Refusals of the backend are outcomes; faults are raised.
    """
    row = Row(job.key, job.backend, job.target, COMPILES, "", job.made_by, job.options)
    start = time.process_time()
    try:
        program, scheme, remark = _lowered(job, programs, calibration)
    except DelegateKitError as error:
        scheme = FLOAT if job.scheme == AUTO else job.scheme
        return replace(row, outcome=REFUSED, reason=_said(error), scheme=scheme)
    row = replace(row, scheme=scheme, lowering_seconds=time.process_time() - start)
    told = report(program)
    known = [item for item in told.shares.left_out if job.backend in item.reasons]
    left = [LeftOut(item.operator, item.count, item.reasons[job.backend]) for item in known]
    row = replace(_reported(row, told), left_out=tuple(left), file_size=_size(program))
    if not row.delegates:
        reasons = filter(None, (told.idle.get(job.backend, ""), remark))
        return replace(row, outcome=TAKES_NOTHING, reason="; ".join(reasons))
    return _run(row, program, programs, samples, job.runs)


def _said(error: DelegateKitError) -> str:
    return f"{error.what} ({error.where})" if error.where else error.what


def _lowered(
    job: Job, programs: Mapping[str, ExportedProgram], calibration: Sequence[tuple[Any, ...]]
) -> tuple[LoweredProgram, str, str]:
    """The lowered program, the scheme of its quantization, and why it was not quantized although requested."""
    lower_it = partial(lower, backends=[job.backend], options={job.backend: job.options})
    if job.scheme not in (FLOAT, AUTO):
        return lower_it(_quantized(job, job.scheme, programs, calibration)), job.scheme, ""
    program = lower_it(programs)
    backend = get_backend(job.backend)
    offered = backend.quantization_schemes(backend.make_options(job.options))
    if job.scheme == FLOAT or not offered or any(method.delegates for method in program.methods.values()):
        return program, FLOAT, ""
    try:
        return lower_it(_quantized(job, offered[0].name, programs, calibration)), offered[0].name, ""
    except DelegateKitError as error:
        return program, FLOAT, f"not quantized: {_said(error)}"


def _quantized(
    job: Job, scheme: str, programs: Mapping[str, ExportedProgram], calibration: Sequence[tuple[Any, ...]]
) -> dict[str, ExportedProgram]:
    if len(programs) > 1 or not calibration:
        raise DelegateKitError("a scheme is for models of one method that take their inputs by position")
    ((name, program),) = programs.items()
    module = quantize(
        copy.deepcopy(program), calibration, backend=job.backend, scheme=scheme, options=job.options, progress=False
    )
    return {name: torch.export.export(module, tuple(calibration[0]), strict=False)}


def _reported(row: Row, report: Report) -> Row:
    latencies, needed, kept = [], Counter[str](), Counter[str]()
    sources: dict[str, None] = {}
    for method in report.methods:
        estimates = [item.estimate for item in method.delegates if item.estimate is not None]
        known = [item.latency for item in estimates if item.latency is not None]
        latencies += [sum(known)] if known else []
        for item in estimates:
            sources[item.source] = None
            needed |= Counter(item.memory)  # the largest
            kept.update(item.storage)
    return replace(
        row,
        delegates=sum(len(method.delegates) for method in report.methods),
        delegated=report.shares.delegated.operators,
        operators=report.shares.total.operators,
        estimated_seconds=max(latencies, default=None),
        estimated_memory=dict(needed + kept),
        estimated_by="; ".join(sources),
        arena=max(method.arena_size for method in report.methods),
    )


def _size(program: LoweredProgram) -> int:
    return len(program.buffer) + sum(map(len, program.data_files.values()))


def _run(
    row: Row,
    program: LoweredProgram,
    programs: Mapping[str, ExportedProgram],
    samples: Mapping[str, Sequence[Arguments]],
    runs: int,
) -> Row:
    """The row with the results of running; a program that does not run here still counts as compiled."""
    runtime = get_backend(row.backend).runtime_availability()
    if not runtime.available:
        return replace(row, not_run=runtime.reason)
    compared = Compared(named=len(samples) > 1)
    times: list[Times] = []
    try:
        with load(program.buffer) as loaded:
            for name, of_method in samples.items():
                eager = programs[name].module(check_guards=False)
                method = loaded[name]
                for args, kwargs in of_method:
                    with torch.no_grad():
                        expected = eager(*copy.deepcopy(args), **copy.deepcopy(kwargs))
                    compared.add(name, expected, method(*args, **kwargs))
                method.reset()
                args, kwargs = of_method[0]

                def call(method: Any = method, args: Any = args, kwargs: Any = kwargs) -> object:
                    return method(*args, **kwargs)

                times += call_times([call], runs=runs, warm_up=_WARM_UP, seconds=_LONGEST)
    except DelegateKitError as error:
        return replace(row, not_run=error.what)
    if not times:
        return replace(row, not_run="there are no inputs to run it with")
    slowest = max(times, key=lambda item: item.median)
    isolated = get_backend(row.backend).description.isolated_runtime
    return replace(
        row,
        wall_seconds=slowest.median,
        cpu_seconds=None if isolated else slowest.median_cpu,
        runs=len(slowest.wall),
        outputs=compared.outputs,
        selecting=_selecting(programs),
    )


def _selecting(programs: Mapping[str, ExportedProgram]) -> tuple[str, ...]:
    """The operators that choose elements by their numbers, the most frequent first."""
    nodes = (node for program in programs.values() for node in program.graph.nodes)
    counts = Counter(operator_name(node) for node in nodes if isinstance(selection_of(node), Order))
    return tuple(name for name, _ in counts.most_common())
