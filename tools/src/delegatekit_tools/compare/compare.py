"""`compare`: eager and a lowered program side by side, and the first operator that diverges."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch.export import ExportedProgram

from delegatekit.compiling import Compiling
from delegatekit.edge import Model, exported_programs
from delegatekit.errors import UNEXPECTED, WrongArgumentError, as_ours
from delegatekit.partition import Selectors
from delegatekit.pipeline import choose, lower
from delegatekit.quantization import quantize
from delegatekit_api import ExecutionError
from delegatekit_toolkit.accuracy import ROUNDOFF

from .against import first_difference
from .comparison import Comparison
from .result import Divergence, Measured
from .running import Judged, Lowerings, coarsest_of
from .search import company_of, faulty_run
from .shown import shown
from .sides import Side, Tried, check_runs_here, described, try_side
from .values import flat_values, wanted_method

_checked = as_ours(lambda fault: ExecutionError(fault, where="compare", hint=UNEXPECTED))


@dataclass(frozen=True)
class _Order:
    """The arguments of lowering, for any backends."""

    programs: Mapping[str, ExportedProgram]
    options: Mapping[str, Mapping[str, Any]]
    only: Selectors | None
    skip: Selectors | None
    compiling: Compiling | None


@_checked
def compare(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str],
    against: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    only: Selectors | None = None,
    skip: Selectors | None = None,
    scheme: str | None = None,
    method: str | None = None,
    values: Sequence[Any] | None = None,
    seed: int = 0,
    tighten: float = 1.0,
    thorough: bool = False,
    compiling: Compiling | None = None,
) -> Comparison:
    """Lower a model, run it beside PyTorch, and name the first operator that diverges beyond its dtype's bound.

    Model and backends are as for `lower`; the backends must be able to run here. `values` are the inputs of the call,
    flat; without them the example inputs, or random ones by `seed` if a program has none. `method` is the one to
    compare, if there are several. `scheme` names a quantization scheme of the first backend ("" for its first): the
    model is quantized with these inputs as calibration, and compared with the fake-quantized model in PyTorch.

    Every operator is judged by its own error: it is lowered, in a delegate with all others of its delegate but
    cut off from them, and gets the values that the referee (PyTorch in double precision) has there, rounded to its
    dtypes. The bounds are those of the conformance suite; `tighten`, 1 or more, divides them. If all are right but the
    program's outputs are not (or with `thorough` in any case), runs of 2, 4, 8, ... operators are lowered, for faults
    in the compilation of neighbors. Operators inside control flow get the values of its first iteration.

    With `against`, other backends are lowered to as well, and the first operator is named that exceeds its bound on
    either: within their bounds on both, results cannot be further apart than both bounds together.

    Buffers that the method updates have their initial values; of such a method, the outputs of two calls are compared.
    Random operators are not compared.

    Raises what `lower` raises, RuntimeUnavailableError for a backend whose delegates cannot run here, and
    UnknownMethodError.
    """
    start = time.perf_counter()
    if not tighten >= 1:
        raise WrongArgumentError(f"tighten={tighten!r}", hint="bounds are divided by it: a number of 1 or more")
    given = exported_programs(model, inputs, kwargs, dynamic_shapes, nullcontext())
    name = wanted_method(given, method)
    call = flat_values(given[name], values, seed)
    if scheme is not None:
        given = {name: _quantized(given, name, call, backends, scheme, options)}
    order = _Order(given, options or {}, only, skip, compiling)
    precision = _coarsest(order, (*backends, *against))
    chosen = [backends, against] if against else [backends]
    sides = [_side(order, names, name, call, precision, tighten) for names in chosen]
    found = _first(sides[0], thorough, order)
    operators, remarks = tuple(item.operator for item in sides[0].tried), _remarks(sides[0])
    if against:
        operators, found, more = first_difference(
            sides[0], sides[1], found, lambda side, item: _divergence(side, item, order)
        )
        remarks += more
    return Comparison(
        name,
        tuple("+".join(names) for names in ((backends, against) if against else (backends,))),
        operators,
        tuple(
            replace(output, name=f"{'+'.join(side.program.backends)}, {output.name}") if against else output
            for side in sides
            for output in side.outputs
        ),
        found,
        sum(side.lowerings.count for side in sides),
        time.perf_counter() - start,
        remarks,
    )


def _side(
    order: _Order, names: Sequence[str], method: str, call: Sequence[Any], precision: str, tighten: float
) -> Side:
    chosen = choose(names, {name: found for name, found in order.options.items() if name in names})
    check_runs_here(chosen)
    options = {name: found for name, found in order.options.items() if name in names}
    program = lower(
        dict(order.programs),
        backends=names,
        options=options,
        only=order.only,
        skip=order.skip,
        compiling=order.compiling,
    )
    precisions = {name: choice.backend.compute_precision(options.get(name)) for name, choice in chosen.items()}
    lowerings = Lowerings(chosen, precisions, order.compiling, 1)
    return try_side(program, method, call, lowerings, precision, tighten)


def _first(side: Side, thorough: bool, order: _Order) -> Divergence | None:
    wrong = side.wrong
    if wrong is not None:
        return _divergence(side, wrong, order)
    if not thorough and all(output.measured.right for output in side.outputs):
        return None
    for graph, units in side.graphs:
        run = faulty_run(graph, units)
        if run:
            piece = graph.piece(run)
            (judged,) = graph.attempt([piece])
            tried = [described(unit, graph.plan, Judged({})) for unit in run]
            culprit = replace(tried[-1], measured=described(run[-1], graph.plan, judged).measured)
            snippet = shown(graph, [piece], side.lowerings, order.options)
            return Divergence(culprit, "context", tuple(tried), snippet.text, snippet.reason, snippet.tensors)
    return None


def _divergence(side: Side, tried: Tried, order: _Order) -> Divergence:
    graph, unit = tried.graph, tried.unit
    if tried.judged.failure:
        failed = replace(tried.operator, measured=Measured(difference=tried.judged.failure, fails=True), skipped="")
        snippet = shown(graph, [tried.piece], side.lowerings, order.options, fails=True)
        return Divergence(failed, "alone", (failed,), snippet.text, snippet.reason, snippet.tensors)
    alone = graph.attempt([tried.piece])[0].wrong
    units = next(units for known, units in side.graphs if known is graph)
    run = (unit,) if alone else company_of(graph, units, unit)
    pieces = [graph.piece([item]) for item in run]
    snippet = shown(graph, pieces, side.lowerings, order.options)
    by_unit = {item.unit: item.operator for item in side.tried}
    kind = "alone" if alone else "context"
    found = tuple(by_unit[item] for item in run)
    return Divergence(tried.operator, kind, found, snippet.text, snippet.reason, snippet.tensors)


def _remarks(side: Side) -> tuple[str, ...]:
    remarks = []
    if side.wrong is not None and all(output.measured.right for output in side.outputs):
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


def _coarsest(order: _Order, names: Sequence[str]) -> str:
    found = choose(names, order.options)
    return coarsest_of(choice.backend.compute_precision(order.options.get(name)) for name, choice in found.items())


def _quantized(
    programs: Mapping[str, ExportedProgram],
    method: str,
    call: Sequence[Any],
    backends: Sequence[str],
    scheme: str,
    options: Mapping[str, Mapping[str, Any]] | None,
) -> ExportedProgram:
    if len(programs) > 1:
        raise WrongArgumentError(f"the model has {len(programs)} methods", hint="quantize each by itself")
    if not backends:
        raise WrongArgumentError("no backend is given whose scheme could be used")
    found = quantize(
        programs[method],
        [tuple(call)],
        backend=backends[0],
        scheme=scheme or None,
        options=(options or {}).get(backends[0]),
        progress=False,
    )
    (exported,) = exported_programs(found, tuple(call), None, None, nullcontext()).values()
    return exported
