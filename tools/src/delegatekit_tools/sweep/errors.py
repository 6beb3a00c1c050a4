"""The errors of each output of a program against eager, over all samples."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from delegatekit.quantization import SignalToNoise

from .row import OutputErrors


class Compared:
    """Counts the outputs of calls."""

    def __init__(self, *, named: bool = False) -> None:
        """With `named`, outputs have their method's name before their own."""
        self._named = named
        self._outputs: dict[str, _Output] = {}

    def add(self, method: str, expected: Any, actual: Any) -> None:
        """Count the outputs of a call of a method: those of eager, and what was found."""
        paths, _ = tree_flatten_with_path(expected)
        for (path, exact), found in zip(paths, tree_leaves(actual), strict=True):
            if not isinstance(exact, torch.Tensor) or not exact.numel() or exact.is_complex():
                continue
            own = keystr(path).replace("'", "")
            name = f"{method}{own}" if self._named or not own else own
            self._outputs.setdefault(name, _Output(exact.dtype)).add(exact, found)

    @property
    def outputs(self) -> tuple[OutputErrors, ...]:
        """The errors of each output, in the order of the outputs."""
        return tuple(output.errors(name) for name, output in self._outputs.items())


class _Output:
    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._noise = SignalToNoise()
        self._largest = 0.0
        self._cosine = 1.0
        self._different = self._elements = 0

    def add(self, exact: torch.Tensor, found: torch.Tensor) -> None:
        one, other = exact.detach().flatten(), found.detach().flatten()
        # Equal infinities, and NaN in both, are right.
        same = (one == other) | (one.isnan() & other.isnan())
        self._elements += one.numel()
        self._different += int((~same).sum())
        if not self._dtype.is_floating_point:
            return
        self._noise.add(exact, found)
        one, other = one.double(), other.double()
        self._largest = _worse(self._largest, float(torch.where(same, 0.0, (one - other).abs()).max()))
        self._cosine = -_worse(-self._cosine, -_cosine(one, other))

    def errors(self, name: str) -> OutputErrors:
        """What was counted. Numbers of elements only, where values are no measures: indices, flags."""
        kind = str(self._dtype).removeprefix("torch.")
        if not self._dtype.is_floating_point:
            return OutputErrors(name, kind, self._elements, self._different)
        sqnr = self._noise.decibels
        return OutputErrors(name, kind, self._elements, self._different, sqnr, self._largest, self._cosine)


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """The cosine of the angle between two vectors; 1 for equal ones, also zero ones."""
    return 1.0 if torch.equal(one, other) else float(torch.nn.functional.cosine_similarity(one, other, 0))


def _worse(known: float, found: float) -> float:
    return found if math.isnan(found) else known if math.isnan(known) else max(known, found)
