"""Quantization arguments of programs that are given quantized: ranges narrower than their type are kept, or refused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...context import Context
from ...outcome import Outcome, Verdict
from ...recipe import Recipe, Ref
from ...trial import Runnable, attempt, flatten, words
from ..base import Case
from ..specimens import recipe_of, tensor_of

_Q = "quantized_decomposed"
#: Ranges that programs use: without the lowest number, halves, four and two bits in a byte.
RANGES: Mapping[str, tuple[int, int, torch.dtype]] = {
    "without-the-lowest": (-127, 127, torch.int8),
    "not-negative": (0, 127, torch.int8),
    "four-bits": (-8, 7, torch.int8),
    "seven-bits-unsigned": (0, 127, torch.uint8),
    "four-bits-unsigned": (0, 15, torch.uint8),
}


#: Operators whose results leave the range of their inputs, with further arguments.
OPERATORS: Mapping[str, tuple[Any, ...]] = {
    "aten.add.Tensor": (Ref("xf"),),
    "aten.mul.Tensor": (Ref("xf"),),
    "aten.neg.default": (),
    "aten.linear.default": (Ref("wf"),),
}
#: A difference below this part of a step does not count.
_PARTS = 1000
#: The smallest step that results have.
_FINEST = 1 / 16
_WEIGHT = {"w": tensor_of(4, 8, dtype="int8", values=("integers", -2, 2), constant=True, seed=3)}


def recipes(range_name: str) -> dict[str, Recipe]:
    """For each operator a program whose results leave the range: they must be cut off at its ends.

    Scales are powers of two, and results are whole numbers of steps: none may be another. Their last bits may differ: a
    device may hold a scale with fewer bits than float32 has.
    """
    return {operator: _recipe(operator, *RANGES[range_name]) for operator in OPERATORS}


def _recipe(operator: str, low: int, high: int, dtype: torch.dtype) -> Recipe:
    zero = (low + high + 1) // 2
    given = (1 / 4, zero, low, high, dtype)
    result = (_FINEST if operator == "aten.mul.Tensor" else 1 / 4, zero, low, high, dtype)
    steps: list[tuple[Any, ...]] = [
        ("xq", f"{_Q}.quantize_per_tensor.default", Ref("x"), *given),
        ("xf", f"{_Q}.dequantize_per_tensor.default", Ref("xq"), *given),
    ]
    constants = _WEIGHT if operator == "aten.linear.default" else {}
    if constants:
        steps.append(("wf", f"{_Q}.dequantize_per_tensor.default", Ref("w"), 1.0, 0, -128, 127, torch.int8))
    steps += [
        ("a", operator, Ref("xf"), *OPERATORS[operator]),
        ("aq", f"{_Q}.quantize_per_tensor.default", Ref("a"), *result),
        ("af", f"{_Q}.dequantize_per_tensor.default", Ref("aq"), *result),
    ]
    # Whole numbers, of four steps each, inside the range and beyond both of its ends.
    reach = (high - low + 8) // 4
    tensors = {"x": tensor_of(16, 8, values=("integers", -reach, reach)), **constants}
    return recipe_of(tensors, *steps, exact=True)


class ArgumentsCase(Case):
    """Programs with one range; an example is the program of an operator."""

    def __init__(self, range_name: str) -> None:
        self.name = f"quality/given-range-{range_name}"
        self._recipes = recipes(range_name)

    def examples(self, context: Context) -> Sequence[Recipe]:
        """The programs."""
        return tuple(self._recipes.values())

    def run(self, example: Recipe, context: Context) -> Outcome:
        """Lower, run and compare with eager, step by step; and without the backend, for faults of core."""
        start = time.perf_counter()
        try:
            program, inputs = example.export(), example.inputs()
            with torch.no_grad():
                expected = flatten(example.module()(*inputs))
        except Exception as error:
            return Outcome(Verdict.NOT_EXPORTABLE, words(error), example=example.describe())
        judge = partial(_judged, inputs, expected)
        options = context.by_backend
        outcome = attempt(program, judge, backends=[context.backend], options=options, second=context.stock)
        if outcome.verdict.is_fault:
            alone = attempt(program, judge, backends=[])
            outcome = replace(outcome, blame="core" if alone.verdict.is_fault else "backend")
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return replace(outcome, example=example.describe(), seconds=time.perf_counter() - start)

    def snippet(self, example: Recipe, context: Context) -> str:
        """The program as Python."""
        return example.snippet(context.backend)


def _judged(inputs: Sequence[Any], expected: Sequence[torch.Tensor], method: Runnable) -> Outcome:
    """Run the program and compare the numbers with eager's."""
    try:
        results = flatten(method.run(tuple(inputs)))
    except Exception as error:
        return Outcome(Verdict.RUN_ERROR, words(error))
    for result, wanted in zip(results, expected, strict=True):
        wrong = int((~((result - wanted).abs() * _PARTS <= _FINEST)).sum())  # NaN is wrong, too
        if wrong:
            ends = f"{_ends(result)}, eager's {_ends(wanted)}"
            return Outcome(
                Verdict.MISMATCH, f"{wrong} of {result.numel()} numbers are not eager's; the results are {ends}"
            )
    return Outcome(Verdict.DELEGATED)


def _ends(tensor: torch.Tensor) -> str:
    return f"{float(tensor.min()):g} to {float(tensor.max()):g}"


def cases() -> Iterator[Case]:
    """One for each range."""
    for name in RANGES:
        yield ArgumentsCase(name)
