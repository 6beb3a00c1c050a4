"""Special values that a backend declares in its support table: the wrong results that they explain.

A row of the table says for which inputs its results are not PyTorch's ("exp(NaN) is 0"). That explains a wrong result
only if the very same program is right without such numbers: with ordinary ones in the place of NaN, infinities, very
large numbers and zeros with a sign, in all elements where eager's result is finite (1 / 0 is not). A device that
computes in float16 has numbers up to 65504, and must be right about them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_tools.report import special_values

from ..context import Context
from ..joined import Joined
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..trial import Subject, try_subject

#: Outcomes of a program that special values may explain. They never explain a crash, or a program that is not compiled
_EXPLAINED = (Verdict.MISMATCH, Verdict.RUN_ERROR, Verdict.STOCK)
#: and a run that fails as a whole only if the declaration says so, by a word that begins like one of these.
_FAILING = ("fail", "refuse", "error")
#: Floating-point numbers beyond the first, or nearer to zero than the second, are not ordinary ...
_ENDS = (2.0**24, torch.finfo(torch.float32).tiny)
#: ... and these for a device that computes in float16: the range of its full precision.
_ENDS_HALF = (65504.0, torch.finfo(torch.float16).tiny)
#: Whole numbers beyond this are not ordinary: their products exceed 32 bits.
_LARGEST_WHOLE = 1 << 15


def explained(example: Any, outcome: Outcome, context: Context) -> Outcome:
    """The outcome, and those of other kinds in it, each with the backend's declaration that explains it."""
    # A fault of several recipes may occur only in the whole.
    parts = (*example.parts, example) if isinstance(example, Joined) else (example,)
    programs = [part for part in parts if isinstance(part, Recipe | Joined)]

    def with_words(fault: Outcome) -> Outcome:
        named = [program for program in programs if program.describe() == fault.example]
        if len(named) > 1:  # programs that differ in their numbers alone
            named = [program for program in named if _is_faulty(program, context)]
        found = [_declared(program, fault, context) for program in named]
        return replace(fault, declared=found[0]) if found and all(found) else fault

    return replace(with_words(outcome), others=tuple(map(with_words, outcome.others)))


def _declared(program: Recipe | Joined, outcome: Outcome, context: Context) -> str:
    """The backend's declaration that explains the fault of a program, in its own words; empty if there is none."""
    if outcome.verdict not in _EXPLAINED or outcome.blame != "backend":
        return ""
    try:
        subject = _subject(program)
        said = tuple(_said(subject, context))
        if outcome.verdict is Verdict.RUN_ERROR:
            said = tuple(text for text in said if any(word in text for word in _FAILING))
        half = discovery.get_backend(context.backend).compute_precision(context.options) == "float16"
        ends, largest = (_ENDS_HALF, _ENDS_HALF[0]) if half else (_ENDS, sys.float_info.max)
        if not said or not _made_ordinary(subject, ends, largest):
            return ""
        subject = replace(subject, largest=largest)
        right = not try_subject(subject, replace(context, stock=outcome.verdict is Verdict.STOCK)).verdict.is_fault
    except Exception:
        return ""  # the fault stands as found
    return "; ".join(said) if right else ""


def _subject(program: Recipe | Joined) -> Subject:
    return Subject.of_recipe(program) if isinstance(program, Recipe) else Subject.of_joined(program)


def _is_faulty(program: Recipe | Joined, context: Context) -> bool:
    try:
        return try_subject(_subject(program), context).verdict.is_fault
    except Exception:
        return True  # its cause is unknown


def _said(subject: Subject, context: Context) -> Iterable[str]:
    """The backend's declarations on the calls that it takes, if its partitioner makes any."""
    program = delegatekit.lower(subject.program, backends=[context.backend], options=context.by_backend)
    return special_values(program).get(context.backend, ())


def _made_ordinary(subject: Subject, ends: tuple[float, float], largest: float) -> bool:
    """Put ordinary numbers in the place of special ones, in the inputs and constants; True if there are any.

    They may also be in eager's computation: in its results, where these are not compared, or only on the
    way (a quotient by zero whose infinities are replaced), because of zeros.
    """
    given = _replaced(subject, lambda tensor: _unusual(tensor, *ends))
    within = _Exceeding(largest)
    with within:
        results = [item for item in next(subject.references(0.0))[0] if item.is_floating_point()]
    if not all(bool((item.abs() <= largest).all()) for item in results):
        return True
    return given or (within.found and _replaced(subject, lambda tensor: tensor == 0))


class _Exceeding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches whether an operator of eager makes NaN or numbers above a largest one."""

    def __init__(self, largest: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest, self.found = largest, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for item in tree_leaves(result):
            if isinstance(item, torch.Tensor) and item.is_floating_point():
                self.found |= not bool((item.abs() <= self.largest).all())
        return result


def _replaced(subject: Subject, special: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Put ordinary numbers in the place of special ones; True if there were any."""
    tensors = [value for call in subject.calls for value in call if isinstance(value, torch.Tensor)]
    tensors += [*subject.module.buffers(), *subject.module.parameters()]
    replaced = [_replace(tensor.detach(), seed, special) for seed, tensor in enumerate(tensors)]
    return any(replaced)


def _unusual(tensor: torch.Tensor, largest: float, smallest: float) -> torch.Tensor:
    if not tensor.is_floating_point():
        return (tensor > _LARGEST_WHOLE) | (tensor < -_LARGEST_WHOLE)
    size = tensor.abs()
    unusual = ~tensor.isfinite() | (size > largest) | ((size < smallest) & (size > 0))
    return unusual | ((tensor == 0) & tensor.signbit())


def _replace(tensor: torch.Tensor, seed: int, special: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    # Of an expanded tensor, each element once.
    tensor = tensor[tuple(slice(0, None if step else 1) for step in tensor.stride())]
    if tensor.is_floating_point():
        generator = torch.Generator().manual_seed(seed)
        near_one = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) / 2 + 0.75
        other = near_one.to(tensor.dtype)
    elif tensor.dtype is torch.int64 or tensor.dtype is torch.int32:
        other = tensor.remainder(_LARGEST_WHOLE).clamp(min=1)
    else:
        return False
    where = special(tensor)
    if not where.any():
        return False
    tensor.copy_(torch.where(where, other, tensor))
    return True
