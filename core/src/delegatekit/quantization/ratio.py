"""Signal to quantization noise: the error of rounded numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


class SignalToNoise:
    """Energies of a signal and of its noise, summed up over tensors."""

    def __init__(self) -> None:
        self._signal = self._noise = 0.0
        self._seen = False

    def add(self, expected: Any, actual: Any) -> None:
        """Add a tensor; anything but a float tensor is skipped."""
        if not isinstance(expected, torch.Tensor) or not expected.is_floating_point():
            return
        self._seen = True
        exact = expected.detach().double()
        self._signal += float(exact.square().sum())
        self._noise += float((actual.detach().double() - exact).square().sum())

    @property
    def decibels(self) -> float | None:
        """10 log10: infinite without noise, minus infinity for noise alone; None if nothing was counted."""
        if not self._seen:
            return None
        if self._noise == 0:
            return math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf


def sqnr_db(results: torch.Tensor | Sequence[torch.Tensor], references: torch.Tensor | Sequence[torch.Tensor]) -> float:
    """Signal to quantization noise in decibels, of one tensor or over several of the same shapes.

    10 log10(sum of reference^2 / sum of squared differences): infinite for equal tensors, minus infinity for noise on
    a reference of zeros.
    """
    ratio = SignalToNoise()
    pairs = [(results, references)] if isinstance(results, torch.Tensor) else zip(results, references, strict=True)
    for result, reference in pairs:
        ratio.add(reference, result)
    found = ratio.decibels
    return math.inf if found is None else found
