"""Programs that are given quantized: two operands whose scales and zero points are chosen, equal and different.

Calibrated operands have either both in common or none: kernels that compare integers as they are, or copy them, may ask
only for one. Scales are powers of two, and results whole numbers of steps, so that no rounding excuses a difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Final

import torch
from torch import nn

from delegatekit.plugins import discovery
from delegatekit_api.schemes import QuantizationScheme

from ..context import Context
from ..outcome import Outcome, Verdict
from ..recipe import define
from ..trial import Runnable, flatten, words
from .base import Case
from .quantized import NO_SCHEMES, judged
from .quantized_forms import Tried
from .quantized_operators import other_targets, snippet_of

_Q: Final[Any] = torch.ops.quantized_decomposed
#: The step of the first operand in eight bits; with more, it is divided. The second one's numbers are multiples of the
#: coarsest of its steps.
_STEP: Final = 1 / 8
_STEPS: Final[Mapping[str, float]] = {"the same scale": _STEP, "a finer scale": _STEP / 2, "a coarser scale": _STEP * 2}
#: Distances of zero points from the middle of the range: the first operand's, and another one. An inexact device may be
#: off by a step or two: these differ by more.
_ZERO, _OTHER_ZERO = 3, -6
#: A difference below this part of a step is one of the numbers' last bits: a device may hold a scale with fewer.
_PARTS: Final = 1000


@dataclass(frozen=True)
class Operator:
    """One of them, with what makes its results whole numbers of steps in eight bits."""

    compute: Callable[..., Any]
    #: The step of its results; None if they are booleans, or not rounded.
    step: float | None = _STEP
    #: Shapes of the operands.
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((8, 16), (8, 16))
    #: The largest operands, in steps of the first, and in the coarsest ones of the second.
    reach: tuple[int, int] = (7, 7)
    #: The number of steps of operands for each of these: more where results are sums, whose operands must be small.
    parts: int = 1
    #: Inputs of other types, after both.
    more: tuple[torch.Tensor, ...] = field(default=(), compare=False)


def _comparison(compute: Callable[..., Any]) -> Operator:
    return Operator(compute, None)


_CHOSEN = torch.rand(8, 16, generator=torch.Generator().manual_seed(2)) < 0.5
#: Operators of two operands that quantized programs may have, and none: a value that is rounded to other steps.
OPERATORS: Mapping[str, Operator] = {
    "add": Operator(torch.add),
    "sub": Operator(torch.sub),
    "mul": Operator(torch.mul, _STEP / 4),
    "maximum": Operator(torch.maximum),
    "minimum": Operator(torch.minimum),
    "eq": _comparison(torch.eq),
    "ne": _comparison(torch.ne),
    "lt": _comparison(torch.lt),
    "le": _comparison(torch.le),
    "gt": _comparison(torch.gt),
    "ge": _comparison(torch.ge),
    "where": Operator(lambda x, y, chosen: torch.where(chosen, x, y), more=(_CHOSEN,)),
    "cat": Operator(lambda x, y: torch.cat((x, y))),
    "matmul": Operator(torch.matmul, _STEP / 4, ((2, 4, 8), (2, 8, 5)), (3, 2), 8),
    "requantize": Operator(lambda x, y: y),
}


@dataclass(frozen=True)
class Form:
    """The integers of operands and results."""

    dtype: torch.dtype = torch.int8
    low: int = -128
    high: int = 127
    #: True if zero points are in the middle of the range.
    symmetric: bool = False

    @property
    def parts(self) -> int:
        """The number of steps for each step of eight bits: a device that is inexact is so of the whole range."""
        return 1 << max(0, (self.high - self.low).bit_length() - 8)

    def rounded(self, x: torch.Tensor, step: float, distance: int) -> Any:
        """Numbers that were integers, whose zero point has a distance from the middle; both in steps of eight bits."""
        zero = (self.low + self.high + 1) // 2 + distance * self.parts
        arguments = step / self.parts, zero, self.low, self.high, self.dtype
        return _Q.dequantize_per_tensor(_Q.quantize_per_tensor(x, *arguments), *arguments)


class Combinations(nn.Module):
    """An operator with each combination of scales and zero points, of operands and of its result."""

    def __init__(self, operator: Operator, form: Form) -> None:
        super().__init__()
        self.operator, self.form = operator, form
        zeros = (0,) if form.symmetric else (_ZERO, _OTHER_ZERO)
        self.first = zeros[0]
        #: The step of its results.
        self.step = (operator.step or _STEP) / form.parts
        results: Sequence[int | None] = (None,) if operator.step is None else zeros
        #: What each output is about: its operands' scales and zero points, and its result's.
        self.labels: list[str] = []
        self.chosen: list[tuple[float, int, int | None]] = []
        for (scale, step), distance, result in product(_STEPS.items(), zeros, results):
            self.chosen.append((step, distance, result))
            other = "" if result in (None, self.first) else ", the result another one"
            same = "the same zero point" if distance == self.first else "another zero point"
            self.labels.append(f"the second operand has {scale} and {same}{other}")

    def forward(self, x: torch.Tensor, y: torch.Tensor, *more: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results, rounded to their steps."""
        parts = self.operator.parts
        left = self.form.rounded(x, _STEP / parts, self.first)
        results = []
        for step, distance, result in self.chosen:
            found = self.operator.compute(left, self.form.rounded(y, step / parts, distance), *more)
            if self.operator.step is not None and result is not None:
                found = self.form.rounded(found, self.operator.step, result)
            results.append(found)
        return tuple(results)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Whole numbers of steps: often equal ones, and none that a range cuts off."""
        generator, coarsest = torch.Generator().manual_seed(1), max(_STEPS.values())
        made = [
            torch.randint(-reach, reach + 1, shape, generator=generator) * step
            for shape, reach, step in zip(self.operator.shapes, self.operator.reach, (_STEP, coarsest), strict=True)
        ]
        return *made, *self.operator.more


class TwoOperandsCase(Case):
    """One operator, for backends that have schemes: only the types of their integers are about the schemes."""

    def __init__(self, name: str) -> None:
        self.name = f"quantized/given-two-operands-{name}"
        self._operator = OPERATORS[name]

    @property
    def cost(self) -> float:
        """Lowering takes most of it."""
        return 2.0

    def examples(self, context: Context) -> Sequence[Tried]:
        """The first scheme for each type of integers."""
        return [Tried(scheme) for scheme in _forms(context)] or [Tried(NO_SCHEMES)]

    def further(self, first: Sequence[Tried], context: Context) -> Sequence[Tried]:
        """The same with the options of the last target, which may take what others refuse."""
        last = other_targets(context)[-1:]
        return [Tried(scheme, options) for options in last for scheme in _forms(context.beside(dict(options)))]

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the backend took each program in part."""
        return all(outcome.delegates for outcome in tried)

    def run(self, example: Tried, context: Context) -> Outcome:
        """Lower, run, compare with the module in eager: no step is excused but what the scheme declares."""
        if example.scheme == NO_SCHEMES:
            return Outcome(Verdict.NOT_APPLICABLE, NO_SCHEMES, example=NO_SCHEMES)
        start = time.perf_counter()
        define("quantized_decomposed")
        chosen = context.beside(dict(example.options))
        form, relative_error = _forms(chosen)[example.scheme]
        module = Combinations(self._operator, form).eval()
        inputs = module.inputs()
        with torch.no_grad():
            expected = flatten(module(*inputs))
        compare = partial(_exactly, module.labels, inputs, expected, module.step, relative_error)
        outcome = judged(module, inputs, example.scheme, chosen, compare=compare)
        if outcome.verdict.is_fault:
            outcome = replace(outcome, snippet=snippet_of(self.name, context))
        return replace(outcome, example=example.describe(), seconds=time.perf_counter() - start)


def _forms(context: Context) -> dict[str, tuple[Form, float]]:
    """For the first scheme of each type of integers that the backend's activations have: it, and the declared error.

    Schemes that do not quantize activations get bytes with a sign.
    """
    backend = discovery.get_backend(context.backend)
    found: dict[Form, tuple[str, float]] = {}
    for scheme in backend.quantization_schemes(backend.make_options(context.options)):
        found.setdefault(_form_of(scheme), (scheme.name, scheme.relative_error))
    return {name: (form, error) for form, (name, error) in found.items()}


def _form_of(scheme: QuantizationScheme) -> Form:
    given = next((rule.input for rule in scheme.rules if rule.input is not None), None)
    # A symmetric range may lack its lowest number, which no program here has.
    return Form() if given is None else Form(getattr(torch, given.dtype), *given.range, given.symmetric)


def _exactly(
    labels: Sequence[str],
    inputs: Sequence[Any],
    expected: Sequence[torch.Tensor],
    step: float,
    relative_error: float,
    method: Runnable,
) -> Outcome:
    """Run the program and compare its numbers with eager's."""
    try:
        results = flatten(method.run(tuple(inputs)))
    except Exception as error:
        return Outcome(Verdict.RUN_ERROR, words(error))
    for label, result, wanted in zip(labels, results, expected, strict=True):
        if result.shape != wanted.shape or result.dtype is not wanted.dtype:
            form = f"{result.dtype} of {tuple(result.shape)}, not {wanted.dtype} of {tuple(wanted.shape)}"
            return Outcome(Verdict.MISMATCH, f"{label}: the result is {form}")
        allowed = step / _PARTS
        if relative_error and wanted.is_floating_point():
            # An inexact sum may be rounded to the next step.
            allowed += step * math.ceil(relative_error * float(wanted.abs().max()) / step)
        wrong = ~((result.double() - wanted.double()).abs() <= allowed)  # NaN is wrong, too
        if bool(wrong.any()):
            place = tuple(int(axis) for axis in wrong.nonzero()[0])
            values = f"{result[place].item():g} instead of {wanted[place].item():g} at {place}"
            return Outcome(
                Verdict.MISMATCH, f"{label}: {int(wrong.sum())} of {result.numel()} numbers are not eager's: {values}"
            )
    return Outcome(Verdict.DELEGATED)


def cases() -> Iterator[Case]:
    """One for each operator."""
    for name in OPERATORS:
        yield TwoOperandsCase(name)
