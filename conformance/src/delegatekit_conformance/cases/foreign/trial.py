"""One trial of a file that stock's compiler writes: its result in the backend's runtime, against eager."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_api import DelegateKitError, RuntimeUnavailableError

from ... import stock
from ...context import Context
from ...outcome import Outcome, Verdict, whole_of
from ...trial import run_calls, words
from .compilers import Way, write
from .subjects import Program


@dataclass(frozen=True)
class _Written:
    """A file, or the reason why there is none."""

    data: bytes = b""
    fault: str = ""


def missing(way: Way, context: Context) -> str:
    """Reason why stock's compiler cannot be used here; empty if it can."""
    if not context.stock:
        return stock.OFF
    return stock.no_process() or way.missing


def try_program(program: Program, context: Context) -> Outcome:
    """Try a program, and its halves where something of it is wrong, cannot be lowered, or hinders the rest.

    The outcome is that of the first piece that is wrong by itself; of the whole, where only it is; else it stands
    for all pieces.
    """
    start = time.perf_counter()
    reason = "" if program.written else missing(program.way, context)
    if reason:
        return Outcome(Verdict.NOT_APPLICABLE, reason, example=program.describe())
    found = _tried(program, context)
    # The accuracy of the backend's own programs is measured elsewhere: a way has its own precision.
    return replace(found, error=None, tolerance=None, seconds=time.perf_counter() - start)


def _tried(program: Program, context: Context) -> Outcome:
    outcome = replace(_try(program, context), example=program.describe())
    if outcome.verdict.is_fault and len(program.pieces) == 1:
        # Expectations match these words: a case has many pieces.
        outcome = replace(outcome, detail=f"{program.describe()}: {outcome.detail}")
    unclear = outcome.verdict.is_fault or outcome.verdict in (Verdict.NOT_APPLICABLE, Verdict.NOT_EXPORTABLE)
    if len(program.pieces) == 1 or not unclear:
        return outcome
    halves = [_tried(half, context) for half in program.halves]
    faults = [half for half in halves if half.verdict.is_fault]
    if faults:
        first, *others = faults
        return replace(first, others=(*first.others, *(replace(one, others=()) for one in others)))
    if outcome.verdict.is_fault:
        return outcome
    return whole_of(halves, program.describe())


def _try(program: Program, context: Context) -> Outcome:
    precision = program.precision
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of exporting recurrent layers
            subject = program.subject()
        expected = list(subject.references(subject.accuracy.roundoff(precision)))
    except Exception as error:
        return Outcome(Verdict.NOT_EXPORTABLE, words(error))
    written = _file(program, program.way.partitioner)
    if written.fault:
        told = f"stock's pipeline does not lower it: {written.fault}"
        return Outcome(Verdict.NOT_APPLICABLE, told, refusals=(f"{program.describe()[:120]}: {written.fault}",))
    try:
        (method,) = delegatekit.inspect(written.data).methods
    except Exception as error:
        # Outside the delegates: mostly an operator without a kernel in the runtime.
        return Outcome(Verdict.NOT_APPLICABLE, f"outside the delegates: {words(error)}", refusals=(words(error),))
    outside = {name: count for name, count in method.operators.items() if not _is_bookkeeping(name)}
    counts: dict[str, Any] = {
        "delegates": len(method.delegates),
        "fallback_calls": sum(outside.values()),
        "delegate_bytes": sum(one.blob_size for one in method.delegates),
        "refusals": tuple(f"{name}: stock's partitioner leaves it outside" for name in outside),
    }
    if not method.delegates:
        return Outcome(Verdict.FALLBACK, **counts)
    available = discovery.get_backend(context.backend).runtime_availability()
    if not available.available:
        return Outcome(Verdict.UNAVAILABLE, available.reason, **counts)
    try:
        loaded = delegatekit.load(written.data)["forward"]
    except RuntimeUnavailableError as error:
        return Outcome(Verdict.UNAVAILABLE, words(error), **counts)
    except Exception as error:
        return Outcome(Verdict.LOAD_ERROR, words(error), blame="backend", **counts)
    judged = run_calls(subject, expected, precision, loaded)
    if not judged.verdict.is_fault:
        verdict = Verdict.PARTLY if counts["fallback_calls"] else Verdict.DELEGATED
        return replace(judged, verdict=verdict, **counts)
    blame = "backend"
    if outside:
        # The same operators outside a delegate: an error there, too, is no fault of the backend's runtime.
        plain = _file(program, "")
        if not plain.fault:
            alone = _run_alone(plain.data, subject, expected)
            blame = "core" if alone is judged.verdict else blame
    return replace(judged, blame=blame, **counts)


def _run_alone(data: bytes, subject: Any, expected: Any) -> Verdict:
    try:
        return run_calls(subject, expected, "float64", delegatekit.load(data)["forward"]).verdict
    except DelegateKitError:
        return Verdict.NOT_APPLICABLE  # nothing to compare with


def _is_bookkeeping(operator: str) -> bool:
    """True if an operator of a file computes nothing: sizes that are read, checks."""
    return operator.startswith(("executorch_prim::", "aten::sym_", "aten::_assert"))


def _file(program: Program, partitioner: str) -> _Written:
    """The file that stock's compiler writes, made once."""
    if partitioner not in program.written:
        try:
            found = _Written(stock.elsewhere(_write, program, partitioner))
        except stock.StockError as error:
            found = _Written(fault=str(error).strip().splitlines()[0])
        program.written[partitioner] = found
    written: _Written = program.written[partitioner]
    return written


def _write(program: Program, partitioner: str) -> bytes:
    """Runs in the process of the stock runtime."""
    return write(partitioner, program.exported())
