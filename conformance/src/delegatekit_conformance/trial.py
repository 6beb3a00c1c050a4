"""One trial: exports a subject, lowers it, loads the file, runs it and compares with the oracle. In this process.

The same is done without any backend, on the runtime's own operators alone, to distinguish a fault of the core from a
fault of the backend.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Node

import delegatekit
from delegatekit import LoweredProgram
from delegatekit.lowering import Delegate, Replacement
from delegatekit.partition import PartitionPlan
from delegatekit.plugins import discovery
from delegatekit_api import DelegateKitError, OptionError, RuntimeUnavailableError, UnsupportedError
from delegatekit_api.nodes import operator_name
from delegatekit_toolkit.accuracy import ROUNDOFF, Accuracy, Comparison, compare, rounded, shaken, widened

from . import stock
from .context import Context
from .insides import line_of, told_of
from .joined import Joined
from .outcome import Outcome, Verdict, whole_of
from .recipe import Recipe

#: The reference of one call: outputs in double precision, what eager returns without that, and what the outputs become
#: when the inputs are rounded (None if the subject is not ill-conditioned).
Reference = tuple[list[torch.Tensor], list[torch.Tensor], "list[torch.Tensor] | None"]


class Runnable(Protocol):
    """A method of a loaded file: of this engine's, or of the stock runtime's."""

    def run(self, inputs: Sequence[Any]) -> Any:
        """The outputs of one call."""
        ...


@dataclass(frozen=True)
class Part:
    """Outputs that follow one another and are judged together: how many tensors, and how exact they can be."""

    outputs: int
    accuracy: Accuracy


@dataclass(frozen=True)
class Subject:
    """The subject of a trial: a module with the inputs of one or several calls, and the accuracy of its results."""

    module: nn.Module
    #: Inputs of the calls in order; the first are the example inputs of the export.
    calls: tuple[tuple[Any, ...], ...]
    accuracy: Accuracy
    dynamic_shapes: Any = None
    #: True if calls change buffers of the module, so that a call's result depends on the calls before it.
    stateful: bool = False
    #: The outputs in parts with accuracies of their own; empty if `accuracy` is that of all.
    parts: tuple[Part, ...] = ()
    #: The recipe whose program, made once for all trials, stands for the module; None if the module is exported itself.
    recipe: Recipe | None = None
    #: Elements that eager makes NaN, infinite or larger than this are not compared; None: all are.
    largest: float | None = None

    @classmethod
    def of_recipe(cls, recipe: Recipe) -> Subject:
        """The subject of a recipe."""
        calls = (recipe.inputs(), *(recipe.inputs(sizes) for sizes in recipe.calls))
        return cls(recipe.module(), calls, recipe.accuracy, recipe.dynamic_shapes())

    @classmethod
    def of_joined(cls, joined: Joined) -> Subject:
        """The subject of several recipes in one program; each is judged by its own accuracy."""
        with torch.no_grad():
            counts = [len(flatten(part.module()(*part.inputs()))) for part in joined.parts]
        parts = tuple(Part(count, part.accuracy) for count, part in zip(counts, joined.parts, strict=True))
        return replace(cls.of_recipe(joined.whole), parts=parts)

    @cached_property
    def program(self) -> ExportedProgram:
        """The exported program. Raises whatever torch.export raises."""
        if self.recipe is not None:
            return self.recipe.program
        with torch.no_grad():
            module = copy.deepcopy(self.module) if self.stateful else self.module
            return torch.export.export(module, self.calls[0], dynamic_shapes=self.dynamic_shapes, strict=False)

    def references(self, roundoff: float) -> Iterator[Reference]:
        """The results of eager in float64 from the same numbers, call by call; and with inputs off by `roundoff`.

        Perturbed inputs may hide the effect of rounding two similar inputs to a coarser type: both count.
        """
        narrow, wide = copy.deepcopy(self.module), copy.deepcopy(self.module).double()
        moves = (shaken, rounded) if roundoff > ROUNDOFF["float32"] else (shaken,)
        moving = [(copy.deepcopy(self.module).double(), move) for move in moves if self.accuracy.ill_conditioned]
        for inputs in self.calls:
            with torch.no_grad():
                native = flatten(narrow(*_copies(inputs)))
                double = [widened(value) for value in inputs]
                expected = flatten(wide(*double))
                moved = [flatten(module(*(move(value, roundoff) for value in double))) for module, move in moving]
            farthest = [_farthest(*results) for results in zip(expected, *moved, strict=True)] if moved else None
            yield expected, native, farthest


def _farthest(expected: torch.Tensor, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Elementwise, of several results of one shape, the value farthest from the expected one."""
    found = first
    for other in others:
        found = torch.where((other.double() - expected).abs() > (found.double() - expected).abs(), other, found)
    return found


def flatten(result: Any) -> list[torch.Tensor]:
    """The tensors of a module's result in order, numbers as tensors; None is left out, as in the file."""
    leaves = (value for value in torch.utils._pytree.tree_leaves(result) if value is not None)
    return [torch.tensor(value) if isinstance(value, bool | int | float) else value for value in leaves]


def try_recipe(recipe: Recipe, context: Context, **lowering: Any) -> Outcome:
    """Try a recipe; `lowering` are further arguments of `delegatekit.lower`."""
    try:
        subject = replace(Subject.of_recipe(recipe), recipe=recipe)
    except Exception as error:
        return Outcome(
            Verdict.NOT_EXPORTABLE, f"the example cannot be built: {words(error)}", example=recipe.describe()
        )
    return replace(try_subject(subject, context, **lowering), example=recipe.describe())


def try_joined(joined: Joined, context: Context) -> Outcome:
    """Try several recipes as one program, and each by itself where that program is wrong, refused or not exportable.

    The outcome is that of the first part that is wrong by itself; of the whole, if only it is; else it stands for
    all parts.
    """
    if len(joined.parts) == 1:
        return try_recipe(joined.parts[0], context)
    try:
        subject = Subject.of_joined(joined)
    except Exception:  # one of them cannot be built
        return _one_by_one(joined, context)
    outcome = replace(try_subject(subject, context), example=joined.describe())
    if not _is_clear(outcome):
        apart = _one_by_one(joined, context)
        if not outcome.verdict.is_fault or apart.verdict.is_fault:
            return apart
    return outcome


def _is_clear(outcome: Outcome) -> bool:
    """True if the outcome of a joined program is the outcome of each part."""
    unclear = outcome.verdict.is_fault or outcome.core
    return not unclear and outcome.verdict not in (Verdict.REFUSED, Verdict.NOT_EXPORTABLE)


def _one_by_one(joined: Joined, context: Context) -> Outcome:
    """The outcome of the parts: a fault, with those of other kinds, or the best verdict with the sums of all."""
    outcomes: list[Outcome] = []
    faults: dict[tuple[Any, ...], Outcome] = {}
    for part in joined.parts:
        outcome = try_recipe(part, context)
        if outcome.verdict.is_fault or outcome.core:
            faults.setdefault(outcome.kind, replace(outcome, snippet=part.snippet(context.backend)))
        outcomes.append(outcome)
    if faults:
        first, *others = faults.values()
        return replace(first, others=tuple(others))
    return whole_of(outcomes, joined.describe())


def try_subject(
    subject: Subject, context: Context, *, backends: Sequence[str] | None = None, **lowering: Any
) -> Outcome:
    """Try a subject with the context's backend (or `backends`, in priority order) and without any.

    The outcome's `core` is the failure without a backend. If both go wrong, core is to blame.
    """
    start = time.perf_counter()
    try:
        backend = discovery.get_backend(context.backend)
        precision = backend.compute_precision(context.options)
    except DelegateKitError as error:
        return Outcome(Verdict.LOWERING_ERROR, words(error), blame="backend", seconds=time.perf_counter() - start)
    try:
        program = subject.program
        expected = list(subject.references(subject.accuracy.roundoff(precision)))
    except Exception as error:
        return Outcome(Verdict.NOT_EXPORTABLE, words(error), seconds=time.perf_counter() - start)
    backends = [context.backend] if backends is None else list(backends)
    options = context.by_backend
    judge = partial(run_calls, subject, expected, precision)
    alone_here = not_in_stock(
        context,
        backends,
        dynamic=subject.dynamic_shapes is not None,
        inputs=[x for call in subject.calls for x in call],
    )
    device = stock.device_precision(backend, context.options)
    outcome = attempt(
        program,
        judge,
        backends=backends,
        options=options,
        lowering=lowering,
        second=not alone_here,
        on_device=None if device == precision else partial(run_in_precision, subject, device),
    )
    outcome = stock.unjudged(outcome, alone_here)
    if not context.profile.alone and not outcome.verdict.is_fault:
        return replace(outcome, seconds=time.perf_counter() - start)
    alone = attempt(
        program,
        partial(run_calls, subject, expected, "float64"),
        backends=[],
        second=outcome.verdict is Verdict.STOCK,
    )
    refused_alone = alone.verdict is Verdict.REFUSED and outcome.detail == alone.detail
    if outcome.verdict is Verdict.LOWERING_ERROR and refused_alone:
        # The core refuses the program for every backend.
        outcome = replace(outcome, verdict=Verdict.REFUSED, refusals=alone.refusals)
    if alone.verdict.is_fault:
        alone = replace(alone, blame="core")
        outcome = replace(outcome, core=f"{alone.verdict.value}: {alone.detail}")
    if outcome.verdict.is_fault:
        blame = "core" if alone.verdict.is_fault and alone.verdict is outcome.verdict else "backend"
        if outcome.verdict in (Verdict.MISMATCH, Verdict.RUN_ERROR) and not outcome.delegates:
            blame = "core"  # nothing of the backend was in it
        outcome = replace(outcome, blame=blame)
    return replace(outcome, seconds=time.perf_counter() - start)


def not_in_stock(context: Context, backends: Sequence[str], *, dynamic: bool, inputs: Iterable[Any] = ()) -> str:
    """Reason why the stock runtime must not run files of these backends: only ours may take sizes that change, or the
    order of these inputs. Empty if it may.
    """
    if not context.stock:
        return stock.OFF
    if not stock.takes(inputs):
        return stock.ORDER
    descriptions = [discovery.get_backend(name).description for name in backends]
    taken = not dynamic or all(
        description.device_dynamic_shapes or stock.hosts([description.delegate_id]) for description in descriptions
    )
    return "" if taken else stock.STATIC


def attempt(
    exported: ExportedProgram,
    judge: Callable[[Runnable], Outcome],
    *,
    backends: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    lowering: Mapping[str, Any] | None = None,
    second: bool = False,
    on_device: Callable[[Runnable], Outcome] | None = None,
) -> Outcome:
    """Lower a program, load the file, and let `judge` run its method; `lowering` are further arguments of `lower`.

    What `judge` returns counts if it is a fault. If not, the verdict says how much of the program was delegated. With
    `second`, `judge` (or `on_device`, where the device has another precision) then looks at the stock runtime, too, if
    that knows the delegates of the file.
    """
    try:
        program = delegatekit.lower(exported, backends=backends, options=options, **(lowering or {}))
        data = program.buffer
    except Exception as error:
        return _not_lowered(exported, backends, options, error)
    counts = _counts(program, backends)
    claim = broken_claim(program)
    if claim and not lowering:
        return Outcome(Verdict.CLAIM, claim, **counts)
    strange = strange_handles(program, backends)
    if strange:
        return Outcome(Verdict.VIOLATION, strange, **counts)
    for name in backends:
        available = discovery.get_backend(name).runtime_availability()
        if counts["delegates"] and not available.available:
            return Outcome(Verdict.UNAVAILABLE, available.reason, **counts)
    try:
        method = delegatekit.load(data)["forward"]
    except RuntimeUnavailableError as error:  # of this file: it is for a device that the runtime here does not know
        return Outcome(Verdict.UNAVAILABLE, words(error), **counts)
    except Exception as error:
        return Outcome(Verdict.LOAD_ERROR, words(error), **counts)
    judged = judge(method)
    verdict = judged.verdict
    if not verdict.is_fault:
        verdict = Verdict.FALLBACK
        if counts["delegates"]:
            verdict = Verdict.PARTLY if counts["fallback_calls"] else Verdict.DELEGATED
    outcome = replace(judged, verdict=verdict, **counts)
    if verdict.is_fault or not second or (backends and not counts["delegates"]):
        return outcome
    return _in_stock(outcome, program, data, judge, on_device)


def _in_stock(
    outcome: Outcome,
    program: LoweredProgram,
    data: bytes,
    judge: Callable[[Runnable], Outcome],
    on_device: Callable[[Runnable], Outcome] | None,
) -> Outcome:
    """The outcome with the stock runtime's, where that has what the file needs.

    `on_device` judges what stock's own delegates compute, `judge` what the plugins' own runtimes do.
    """
    takers = {part.partition.backend for method in program.methods.values() for part in method.parts}
    delegates = {name: discovery.get_backend(name).description.delegate_id for name in takers}
    refusal = stock.refusal(delegates)
    if refusal:
        return stock.unjudged(outcome, refusal)
    hosted = bool(takers) and stock.hosts(delegates.values())
    try:
        judged = (judge if hosted else on_device or judge)(stock.StockMethod(data, takers))
    except stock.MissingKernel:
        return stock.unjudged(outcome, stock.NO_KERNEL)
    except stock.StockError as error:
        judged = Outcome(Verdict.LOAD_ERROR, str(error))
    return stock.second_opinion(outcome, judged, hosted=hosted)


def run_in_precision(subject: Subject, precision: str, method: Runnable) -> Outcome:
    """`run_calls` with references and tolerances of another precision than the backend's own here."""
    expected = list(subject.references(subject.accuracy.roundoff(precision)))
    return run_calls(subject, expected, precision, method)


def run_calls(subject: Subject, expected: Sequence[Reference], precision: str, method: Runnable) -> Outcome:
    """Run a subject's calls and compare each with its reference; the outcome has the worst error."""
    worst = Comparison()
    for number, (inputs, (references, native, moved)) in enumerate(zip(subject.calls, expected, strict=True)):
        given = _copies(inputs)
        try:
            results = flatten(method.run(given))
        except Exception as error:
            return Outcome(Verdict.RUN_ERROR, _of_call(number, words(error)))
        if subject.largest is not None and len(results) == len(references):
            most = subject.largest
            results = [_where_moderate(*three, most) for three in zip(results, references, native, strict=True)]
        compared = _compared(subject, results, references, native, precision, moved)
        if not compared.agrees:
            difference = _of_call(number, compared.difference)
            return Outcome(Verdict.MISMATCH, difference, error=compared.error, tolerance=compared.tolerance)
        changed = _changed(inputs, given)
        if changed is not None:
            return Outcome(Verdict.MISMATCH, _of_call(number, f"input {changed} was written to"))
        worst = worst.worse(compared)
    return Outcome(Verdict.DELEGATED, error=worst.error, tolerance=worst.tolerance)


def _where_moderate(
    result: torch.Tensor, reference: torch.Tensor, native: torch.Tensor, largest: float
) -> torch.Tensor:
    """A result with eager's own numbers in the places that eager makes NaN, infinite or larger."""
    if result.shape != native.shape or result.dtype != native.dtype or not native.is_floating_point():
        return result
    return torch.where((reference.abs() <= largest) & native.isfinite(), result, native)


def _compared(
    subject: Subject,
    results: Sequence[torch.Tensor],
    references: Sequence[torch.Tensor],
    native: Sequence[torch.Tensor],
    precision: str,
    moved: Sequence[torch.Tensor] | None,
) -> Comparison:
    """The comparison of one call, part by part: the worst, or the first that does not agree."""
    if not subject.parts or len(results) != len(references):
        return compare(results, references, native, precision, subject.accuracy, moved)
    worst, start = Comparison(), 0
    for part in subject.parts:
        own = slice(start, start + part.outputs)
        shaken_by = moved[own] if moved is not None and part.accuracy.ill_conditioned else None
        found = compare(results[own], references[own], native[own], precision, part.accuracy, shaken_by)
        if not found.agrees:
            return found
        worst, start = worst.worse(found), own.stop
    return worst


def broken_claim(program: LoweredProgram) -> str:
    """A claim of a backend's answers that lowering did not keep, in words; empty if there is none.

    A claimed node that no delegate has, a refused one that its delegate has, or one that was refused without a reason.
    """
    for method in program.methods.values():
        for plan in _plans(method.plan):
            for node in plan.fallback:
                for backend, answer in plan.verdicts.get(node, {}).items():
                    if answer.supported and not answer.passenger:
                        return f"{operator_name(node)}: {backend} claimed it, but no delegate has it"
                    if not answer.supported and not answer.reason.strip():
                        return f"{operator_name(node)}: {backend} refused it without a reason"
            # A node may be refused by itself and accepted in the group of another.
            grouped = {
                (member, backend)
                for node, backend in plan.taker.items()
                if (taken := plan.verdicts.get(node, {}).get(backend)) is not None and taken.supported
                for member in taken.group
            }
            for node, backend in plan.taker.items():
                if (node, backend) in grouped:
                    continue
                taken = plan.verdicts.get(node, {}).get(backend)
                if taken is not None and not taken.supported:
                    return f"{operator_name(node)}: {backend} refused it ({taken.reason}), but its delegate has it"
    return ""


def strange_handles(program: LoweredProgram, backends: Sequence[str]) -> str:
    """Debug handles that a delegate reports and none of its operators has; empty if there are none."""
    for method in program.methods.values():
        for delegate in method.delegates:
            own = {node.meta.get("debug_handle") for node in delegate.partition.nodes}
            for key, handles in delegate.debug_handle_map.items() if delegate.partition.backend in backends else ():
                strangers = [handle for handle in handles if handle not in own]
                if strangers:
                    return (
                        f"operator {key!r} of a delegate has the debug handle {strangers[0]}, which is of no node of it"
                    )
        for part in method.parts:
            own = {node.meta.get("debug_handle") for node in part.partition.nodes}
            for call in part.program.calls if isinstance(part, Replacement) else ():
                if not own.issuperset(call.debug_handles):
                    return f"a call of {call.operator} has a debug handle of {call.debug_handles} that is of no node"
    return ""


def _plans(plan: PartitionPlan) -> Iterator[PartitionPlan]:
    yield plan
    for regions in plan.regions.values():
        for region in regions:
            yield from _plans(region)


def _counts(program: LoweredProgram, backends: Sequence[str]) -> dict[str, Any]:
    whole = delegatekit.report(program)
    report = whole.methods[0]
    refusals = []
    taken: dict[str, None] = {}
    for method in program.methods.values():
        for plan in _plans(method.plan):
            taken |= {operator_name(node): None for node, backend in plan.taker.items() if backend in backends[:1]}
            for node in plan.fallback:
                refusals += [
                    f"{operator_name(node)}: {_without_names(answer.reason, node)}"
                    for backend, answer in plan.verdicts.get(node, {}).items()
                    if backend in backends[:1] and answer.reason
                ]
    delegates = program.methods["forward"].delegates
    told = [told_of(delegate) for delegate in delegates]
    return {
        "delegates": len(report.delegates),
        "delegated_nodes": report.delegated_nodes,
        "fallback_calls": report.fallback_calls,
        "delegate_bytes": sum(one.blob_size for one in report.delegates) + whole.named_data_size,
        "delegate_operators": sum(map(len, told)),
        "insides": tuple(filter(None, map(line_of, delegates, told))),
        "named_nodes": sum(map(_named, delegates)),
        "refusals": tuple(dict.fromkeys(refusals)),
        "taken": tuple(taken),
    }


def _named(delegate: Delegate) -> int:
    """The number of nodes of a delegate that its debug handles name."""
    handles = {handle for named in delegate.debug_handle_map.values() for handle in named}
    return sum(node.meta.get("debug_handle") in handles for node in delegate.partition.nodes)


def _without_names(reason: str, node: Node) -> str:
    """A reason that does not name this graph's values, so that the same reason is the same in all examples."""
    for operand in node.all_input_nodes:
        reason = re.sub(rf"\b{re.escape(operand.name)}\b", "an operand", reason)
    return reason


def _not_lowered(
    exported: ExportedProgram,
    backends: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None,
    error: Exception,
) -> Outcome:
    """A refusal, if no backend and no runtime kernel supports an operator, if a backend refuses the whole, or if an
    option does not fit the program; else the backend failed on its claim."""
    reasons: tuple[str, ...] = ()
    if isinstance(error, RuntimeUnavailableError):  # of a tool that the options request at compile time
        return Outcome(Verdict.NOT_APPLICABLE, words(error))
    if isinstance(error, UnsupportedError):
        try:
            explanation = delegatekit.explain(exported, backends=backends, options=options)
        except Exception:
            # The core refuses programs of such a kind before it asks a backend; the error itself is the reason.
            return Outcome(Verdict.REFUSED, words(error), refusals=(str(error).splitlines()[0],))
        rows = explanation.unsupported
        reasons = tuple(f"{row.operator}: {reason}" for row in rows for reason in row.reasons.values())
        reasons += explanation.refused
        if not reasons and not rows and not backends:
            reasons = (str(error).splitlines()[0],)
    elif isinstance(error, OptionError):
        reasons = (str(error).splitlines()[0],)
    verdict = Verdict.REFUSED if reasons else Verdict.LOWERING_ERROR
    return Outcome(verdict, words(error), refusals=reasons)


def words(error: Exception) -> str:
    """The error in words, with its type unless it is one of DelegateKit's own."""
    return str(error) if isinstance(error, DelegateKitError) else f"{type(error).__name__}: {error}"


def _of_call(number: int, text: str) -> str:
    return f"call {number}: {text}" if number else text


def _copies(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The same numbers in the same layout, so that writing to them does not change the original."""
    return tuple(value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs)


def _changed(before: Sequence[Any], after: Sequence[Any]) -> int | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if isinstance(old, torch.Tensor) and not torch.equal(torch.nan_to_num(old), torch.nan_to_num(new)):
            return index
    return None
