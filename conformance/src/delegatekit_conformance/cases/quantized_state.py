"""Quantized programs with state: calls read what former calls wrote, whole buffers and parts of them.

A quantizer puts operators between a tensor and what reads it. Where that breaks a view, a write is lost; and what is
calibrated must not remain in the buffers, of the given module or of the quantized one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..context import Context
from ..outcome import Outcome, Verdict
from ..trial import Runnable, attempt, flatten, words
from .base import Case
from .quantized import SchemeCase, depth_of, judge, output_scales, quantized_by, relative_error, ruined
from .quantized_operators import snippet_of
from .state import state
from .subjects import SubjectCase


class QuantizedStateCase(SchemeCase):
    """A program of the room `state`, calibrated by its calls, which follow one another."""

    def __init__(self, stateful: SubjectCase) -> None:
        self.name = f"quantized/state-{stateful.name.partition('/')[2]}"
        self._stateful = stateful

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Quantize, compare buffers and results with those of the float module, lower, run, compare."""
        try:
            module, calls, *dynamic = self._stateful.build()
        except Exception as error:
            return Outcome(Verdict.NOT_EXPORTABLE, words(error))
        if dynamic:
            return Outcome(Verdict.NOT_APPLICABLE, "its sizes change from call to call")
        module.eval().requires_grad_(False)
        before = {name: value.clone() for name, value in module.named_buffers()}
        quantized = quantized_by(scheme, module, calls[0], context, more=calls[1:])
        if isinstance(quantized, Outcome):
            return quantized
        wrong = _written(before, module)
        wrong = wrong or ruined(_in_turn(quantized, calls), _in_turn(module, calls), scheme, context)
        if wrong:
            return Outcome(Verdict.MISMATCH, wrong, blame="core")
        return _judged(quantized, calls, scheme, context)

    def snippet(self, example: str, context: Context) -> str:
        """A script that tries the case again."""
        return snippet_of(self.name, context)


def _written(before: Mapping[str, torch.Tensor], module: nn.Module) -> str:
    """The buffer of the given module that quantizing has changed, in words; empty if there is none."""
    for name, value in module.named_buffers():
        if not torch.equal(before[name], value):
            return f"quantizing changed the buffer {name} of the given module"
    return ""


def _in_turn(module: Any, calls: Sequence[tuple[Any, ...]]) -> list[torch.Tensor]:
    """The results of calls that follow one another, from the module's state, which stays: each output of all calls."""
    module = copy.deepcopy(module)
    with torch.no_grad():
        results = [[output.clone() for output in flatten(module(*inputs))] for inputs in calls]
    # Together: of small numbers among them little may remain beside a range for all.
    return [torch.stack(outputs) for outputs in zip(*results, strict=True)]


def _judged(quantized: Any, calls: Sequence[tuple[Any, ...]], scheme: str, context: Context) -> Outcome:
    """Lower and run the calls one after the other, against the quantized module in eager."""
    try:
        program = torch.export.export(quantized, calls[0], strict=False)
    except Exception as error:
        return Outcome(Verdict.NOT_EXPORTABLE, words(error))
    references = _in_turn(quantized, calls)
    # A call that rounds another way passes that on.
    scales, depth = output_scales(program), depth_of(program) * len(calls)
    inexact = relative_error(scheme, context) * depth

    def run(method: Runnable) -> Outcome:
        try:
            # Copies: a runtime may write a call's results where those of the last one were.
            results = [[output.clone() for output in flatten(method.run(inputs))] for inputs in calls]
        except Exception as error:
            return Outcome(Verdict.RUN_ERROR, words(error))
        for index, (wanted, scale) in enumerate(zip(references, scales, strict=True)):
            found = torch.stack([outputs[index] for outputs in results])
            if not wanted.is_floating_point():
                if not torch.equal(found, wanted):
                    return Outcome(Verdict.MISMATCH, f"output {index} differs")
                continue
            judged = judge(found, wanted, scale, steps=depth, inexact=inexact)
            if not judged.agrees:
                return Outcome(Verdict.MISMATCH, f"output {index} of {len(calls)} calls {judged.difference}")
        return Outcome(Verdict.DELEGATED)

    return attempt(program, run, backends=[context.backend], options=context.by_backend)


def cases() -> Iterator[Case]:
    """The programs of the room `state`."""
    for case in state.cases.values():
        yield QuantizedStateCase(case)
