"""Quantized programs: how the numbers of a backend are judged against the fake-quantized program, run in eager.

A quantized result is not right or wrong to a rounding: an accumulator that ends between two steps may fall either way,
and each operator behind may carry that on. Two measures tell such a difference from a fault: the largest distance in
steps of the output's own scale, which no rounding makes large, and the ratio of signal to quantization noise, which no
single outlier makes small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from delegatekit import discovery

from ..context import Context
from .base import Case, NotApplicable, Rule

#: A backend that rounds each operator's result to the nearest step, either way in a tie, stays within these.
MAX_STEPS = 1
MIN_SQNR_DB = 35.0


@dataclass(frozen=True)
class Judgement:
    """How far a quantized result is from its reference."""

    #: Decibels; infinite for equal tensors.
    sqnr_db: float
    #: Largest difference in steps of the output's scale.
    steps: int
    #: What no rounding excuses, in words; empty if nothing.
    difference: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the result counts as right."""
        return not self.difference


def sqnr_db(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Signal to quantization noise in decibels: 10 log10(sum of reference^2 / sum of squared differences).

    Infinite for equal tensors, minus infinity for noise on a reference of zeros.
    """
    signal = float(reference.double().square().sum())
    noise = float((result.double() - reference.double()).square().sum())
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf


def max_steps(result: torch.Tensor, reference: torch.Tensor, scale: float) -> int:
    """The largest difference in whole steps of `scale`. Raises ValueError for a scale that is not above 0."""
    if not scale > 0.0:
        raise ValueError(f"a scale is above 0, not {scale}")
    if not reference.numel():
        return 0
    return round(float((result.double() - reference.double()).abs().max()) / scale)


def judge(
    result: torch.Tensor,
    reference: torch.Tensor,
    scale: float,
    *,
    steps: int = MAX_STEPS,
    decibels: float = MIN_SQNR_DB,
) -> Judgement:
    """Judge a dequantized result against the fake-quantized program's, both of one shape, whose step is `scale`.

    More than `steps` steps are wrong anywhere, and so is a ratio below `decibels`. The ratio is not asked of a
    reference that is itself within one step of zero: it has no signal to speak of.
    """
    if result.shape != reference.shape:
        return Judgement(-math.inf, 0, f"has shape {tuple(result.shape)}, not {tuple(reference.shape)}")
    if not result.isfinite().all():
        return Judgement(-math.inf, 0, "has NaN or infinities, which no quantized program makes")
    ratio, far = sqnr_db(result, reference), max_steps(result, reference, scale)
    if far > steps:
        return Judgement(ratio, far, f"is {far} steps of {scale:.3g} away, {steps} are allowed")
    silent = not reference.numel() or float(reference.abs().max()) <= scale
    if ratio < decibels and not silent:
        return Judgement(ratio, far, f"has a signal to noise ratio of {ratio:.1f} dB, {decibels:.1f} dB are wanted")
    return Judgement(ratio, far)


def _schemes(context: Context) -> str:
    """A backend that takes quantized programs agrees with the fake-quantized program."""
    if not discovery.get_backend(context.backend).quantization_schemes():
        raise NotApplicable("the backend declares no quantization schemes")
    raise NotApplicable("the suite has no quantized programs yet")


def cases() -> Iterator[Case]:
    """One, which tells why there are no others."""
    yield Rule("quantized/schemes", _schemes, cost=0.1)
