"""`compare`: eager and a lowered program side by side, and the first operator that diverges."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram

from delegatekit.errors import UNEXPECTED, WrongArgumentError, as_ours
from delegatekit.pipeline import Source, choose, lower, takes
from delegatekit.quantization import quantize
from delegatekit_api import ExecutionError
from delegatekit_toolkit.accuracy import ROUNDOFF

from ..arguments import Comparing
from .against import first_difference
from .comparison import Comparison
from .lowerings import Lowerings
from .passes import Judgment, judged_passes
from .result import Divergence, Measured
from .running import Judged, coarsest_of
from .search import company_of, faulty_run
from .shown import shown
from .sides import Side, Tried, check_runs_here, described, try_side
from .values import flat_values, wanted_method

_checked = as_ours(lambda fault: ExecutionError(fault, where="compare", hint=UNEXPECTED))


@_checked
@takes(Comparing)
def compare(given: Comparing) -> Comparison:
    """Lower a model, run it beside PyTorch, and name the first operator that diverges beyond its dtype's bound.

    Indices, masks and whole numbers are judged by the operands that they stand for: a tie within the bound is right,
    and what follows is compared along the choice that the program made. Passes are judged by the results that the
    program has before and after each; `kind` of the divergence is "pass" if one changes them.

    The backends must be able to run here. Every operator is judged by its own error: it is lowered, in a delegate
    with all others of its delegate but cut off from them, and gets the values that the referee (PyTorch in double
    precision) has there, rounded to its dtypes. The bounds are those of the conformance suite. If all are right but the
    program's outputs are not (or with `thorough` in any case), runs of 2, 4, 8, ... operators are lowered, for faults
    in the compilation of neighbors. Operators inside control flow get the values of its first iteration.

    Buffers that the method updates have their initial values; of such a method, the outputs of two calls are compared.
    Random operators are not compared.

    Raises what `lower` raises, RuntimeUnavailableError for a backend whose delegates cannot run here, and
    UnknownMethodError.
    """
    start = time.perf_counter()
    backends, against = given.backends, given.against
    if not given.tighten >= 1:
        raise WrongArgumentError(f"tighten={given.tighten!r}", hint="bounds are divided by it: a number of 1 or more")
    programs = given.programs()
    name = wanted_method(programs, given.method)
    call = flat_values(programs[name], given.values, given.seed)
    if given.scheme is not None:
        programs = {name: _quantized(programs, name, call, given.scheme, given)}
    exported = programs[name]
    order = replace(given, model=programs, inputs=None, kwargs=None, dynamic_shapes=None)
    precision = _coarsest(order, (*backends, *against))
    chosen = [backends, against] if against else [backends]
    sides = [_side(order, names, name, call, precision) for names in chosen]
    rewritten = [_passes(side, exported, call, order) for side in sides]
    changed = next((judged.wrong for judged in rewritten if judged.wrong is not None), None)
    found = _first(sides[0], order) if changed is None else Divergence(changed, "pass", (changed,))
    operators, remarks = tuple(item.operator for item in sides[0].tried), _remarks(sides[0])
    if against:
        operators, first, more = first_difference(
            sides[0], sides[1], found, lambda side, item: _divergence(side, item, order)
        )
        found, remarks = found if changed is not None else first, remarks + more
    return Comparison(
        name,
        tuple("+".join(names) for names in ((backends, against) if against else (backends,))),
        operators,
        tuple(
            replace(output, name=f"{'+'.join(side.program.backends)}, {output.name}") if against else output
            for side, judged in zip(sides, rewritten, strict=True)
            for output in map(judged.corrected, side.whole.outputs)
        ),
        found,
        sum(side.lowerings.count for side in sides),
        time.perf_counter() - start,
        remarks,
        tuple(dict.fromkeys(item for judged in rewritten for item in judged.passes)),
        sides[0].program.partitioned[name],
    )


def _side(order: Comparing, names: Sequence[str], method: str, call: Sequence[Any], precision: str) -> Side:
    options = {name: found for name, found in (order.options or {}).items() if name in names}
    chosen = choose(names, options)
    check_runs_here(chosen)
    program = lower(
        order.model,
        backends=names,
        options=options,
        only=order.only,
        skip=order.skip,
        passes=order.passes,
        compiling=order.compiling,
    )
    precisions = {name: choice.backend.compute_precision(options.get(name)) for name, choice in chosen.items()}
    lowerings = Lowerings(chosen, precisions, order.compiling, 1)
    return try_side(program, method, call, lowerings, precision, order.tighten)


def _passes(side: Side, program: ExportedProgram, call: Sequence[Any], order: Comparing) -> Judgment:
    """The passes that changed the program, judged; none are run again if nothing was changed."""
    if not side.program.partitioned[side.method].changes:
        return Judgment()
    return judged_passes(program, side.method, order, side.lowerings.chosen, call)


def _first(side: Side, order: Comparing) -> Divergence | None:
    wrong = side.wrong
    if wrong is not None:
        return _divergence(side, wrong, order)
    if not order.thorough and side.whole.right:
        return None
    for graph, units in side.graphs:
        run = faulty_run(graph, units)
        if run:
            piece = graph.piece(run)
            (judged,) = graph.attempt([piece])
            tried = [described(unit, graph.plan, Judged({})) for unit in run]
            culprit = replace(tried[-1], measured=described(run[-1], graph.plan, judged).measured)
            snippet = shown(graph, [piece], side.lowerings, order.options or {})
            return Divergence(culprit, "context", tuple(tried), snippet.text, snippet.reason, snippet.tensors)
    return None


def _divergence(side: Side, tried: Tried, order: Comparing) -> Divergence:
    graph, unit = tried.graph, tried.unit
    if tried.judged.failure:
        failed = replace(tried.operator, measured=Measured(difference=tried.judged.failure, fails=True), skipped="")
        snippet = shown(graph, [tried.piece], side.lowerings, order.options or {}, fails=True)
        return Divergence(failed, "alone", (failed,), snippet.text, snippet.reason, snippet.tensors)
    alone = graph.attempt([tried.piece])[0].wrong
    units = next(units for known, units in side.graphs if known is graph)
    run = (unit,) if alone else company_of(graph, units, unit)
    pieces = [graph.piece([item]) for item in run]
    snippet = shown(graph, pieces, side.lowerings, order.options or {})
    by_unit = {item.unit: item.operator for item in side.tried}
    kind = "alone" if alone else "context"
    found = tuple(by_unit[item] for item in run)
    return Divergence(tried.operator, kind, found, snippet.text, snippet.reason, snippet.tensors)


def _remarks(side: Side) -> tuple[str, ...]:
    remarks = list(side.whole.remarks)
    if side.wrong is not None and side.whole.right:
        remarks.append("the outputs of the whole method are within their bounds, for these inputs")
    places = {item.operator.place.partition(",")[0] for item in side.tried}
    idle = [name for name in side.program.backends if name not in places]
    remarks += [f"backend {name} took nothing: `delegatekit explain` shows why" for name in idle]
    coarse = {name: found for name, found in side.lowerings.precisions.items() if ROUNDOFF[found] > ROUNDOFF["float32"]}
    remarks += [f"backend {name} computes float32 in {found}, and is judged so" for name, found in coarse.items()]
    outside = sum(item.operator.place == "runtime" for item in side.tried)
    if outside:
        remarks.append(f"{outside} of the operators run on the runtime's own kernels")
    return tuple(remarks)


def _coarsest(order: Comparing, names: Sequence[str]) -> str:
    options = order.options or {}
    found = choose(names, options)
    return coarsest_of(choice.backend.compute_precision(options.get(name)) for name, choice in found.items())


def _quantized(
    programs: Mapping[str, ExportedProgram], method: str, call: Sequence[Any], scheme: str, given: Comparing
) -> ExportedProgram:
    if len(programs) > 1:
        raise WrongArgumentError(f"the model has {len(programs)} methods", hint="quantize each by itself")
    if not given.backends:
        raise WrongArgumentError("no backend is given whose scheme could be used")
    found = quantize(
        programs[method],
        [tuple(call)],
        backend=given.backends[0],
        scheme=scheme or None,
        options=(given.options or {}).get(given.backends[0]),
        progress=False,
    )
    (exported,) = Source(found, tuple(call)).programs().values()
    return exported
