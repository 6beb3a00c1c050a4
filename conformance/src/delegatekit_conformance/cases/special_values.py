"""Special values that a backend declares in its support table: what they explain of a wrong result, and what not.

A row of the table says for which inputs its results are not PyTorch's ("exp(NaN) is 0"). That explains a wrong result
only if the very same program is right without such numbers: with ordinary ones in the place of NaN, infinities, very
large numbers and zeros with a sign, in all elements that eager makes finite of them (1 / 0 is not). A device that
computes in float16 has numbers up to 65504, and must be right about them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

import delegatekit
from delegatekit.lowering import Delegate, partition_program
from delegatekit.plugins import discovery

from ..context import Context
from ..joined import Joined
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..trial import Subject, try_subject

#: What special values may make of a program. They never explain a crash, or a program that is not compiled.
_EXPLAINED = (Verdict.MISMATCH, Verdict.RUN_ERROR, Verdict.STOCK)
#: Floating-point numbers beyond this, or nearer to zero than its inverse, are not ordinary ...
_LARGEST = 128.0
#: ... but for a device that computes in float16: these are the ends of what it has.
_LARGEST_HALF = 65504.0
#: Whole numbers beyond this are not ordinary: their products leave 32 bits.
_LARGEST_WHOLE = 1 << 15


def explained(example: Any, outcome: Outcome, context: Context) -> Outcome:
    """The outcome, and those of other kinds in it, each with what the backend declares that explains it."""
    # A fault of several recipes may be one that only the whole shows.
    parts = (*example.parts, example) if isinstance(example, Joined) else (example,)
    programs = {part.describe(): part for part in parts if isinstance(part, Recipe | Joined)}

    def with_words(fault: Outcome) -> Outcome:
        program = programs.get(fault.example)
        return fault if program is None else replace(fault, declared=_declared(program, fault, context))

    return replace(with_words(outcome), others=tuple(map(with_words, outcome.others)))


def _declared(program: Recipe | Joined, outcome: Outcome, context: Context) -> str:
    """What the backend declares that explains the fault of a program, in its own words; empty if nothing does."""
    if outcome.verdict not in _EXPLAINED or outcome.blame != "backend":
        return ""
    try:
        subject = Subject.of_recipe(program) if isinstance(program, Recipe) else Subject.of_joined(program)
        said = dict.fromkeys(_said(subject, context))
        half = discovery.get_backend(context.backend).compute_precision(context.options) == "float16"
        ordinary, largest = (_LARGEST_HALF, _LARGEST_HALF) if half else (_LARGEST, sys.float_info.max)
        if not said or not (_ordinary(subject, ordinary) | _exceeds(subject, largest)):
            return ""
        subject = replace(subject, largest=largest)
        right = not try_subject(subject, replace(context, stock=outcome.verdict is Verdict.STOCK)).verdict.is_fault
    except Exception:
        return ""  # the fault stays as it was found
    return "; ".join(said) if right else ""


def _said(subject: Subject, context: Context) -> Iterator[str]:
    """What the backend declares of the calls that it takes, where its partitioner tells."""
    backend = discovery.get_backend(context.backend)
    partitioner: Any = backend.create_partitioner(backend.make_options(context.options))
    tell = getattr(partitioner, "special_values", None)
    if tell is None:
        return
    options = context.by_backend
    program = delegatekit.lower(subject.program, backends=[context.backend], options=options)
    for name, method in program.methods.items():
        mine = [step for step in method.steps if isinstance(step, Delegate) and step.partition.backend == backend.name]
        for index, delegate in enumerate(mine):
            for call in partition_program(method.edge, delegate.partition, index, name).view.calls():
                text = tell(call)
                if isinstance(text, str) and text.strip():
                    yield text


def _exceeds(subject: Subject, largest: float) -> bool:
    """Whether eager makes NaN or larger numbers of a subject's inputs as they are now."""
    results = [item for item in next(subject.references(0.0))[0] if item.is_floating_point()]
    return not all(bool((item.abs() <= largest).all()) for item in results)


def _ordinary(subject: Subject, largest: float) -> bool:
    """Put ordinary numbers in the place of special ones, in the inputs and constants; whether there were any."""
    tensors = [value for call in subject.calls for value in call if isinstance(value, torch.Tensor)]
    tensors += [*subject.module.buffers(), *subject.module.parameters()]
    replaced = [_replace(tensor.detach(), seed, largest) for seed, tensor in enumerate(tensors)]
    return any(replaced)


def _replace(tensor: torch.Tensor, seed: int, largest: float) -> bool:
    # Of what is expanded, each element once.
    tensor = tensor[tuple(slice(0, None if step else 1) for step in tensor.stride())]
    if tensor.is_floating_point():
        size = tensor.abs()
        special = ~tensor.isfinite() | (size > largest) | ((size < 1 / _LARGEST) & (size > 0))
        special |= (tensor == 0) & tensor.signbit()
        generator = torch.Generator().manual_seed(seed)
        other = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).add(0.5).to(tensor.dtype)
    elif tensor.dtype is torch.int64 or tensor.dtype is torch.int32:
        special = (tensor > _LARGEST_WHOLE) | (tensor < -_LARGEST_WHOLE)
        other = tensor.remainder(_LARGEST_WHOLE)
    else:
        return False
    if not special.any():
        return False
    tensor.copy_(torch.where(special, other, tensor))
    return True
