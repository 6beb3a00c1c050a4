"""The probe in a plugin's sources: an expression in its own form and in a mutant's, of which the first counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")

#: What the current example has shown: a probe's number -> whether the two forms ever had different values.
_seen: dict[int, bool] = {}


@contextmanager
def watching() -> Iterator[dict[int, bool]]:
    """What probes see in this process in the meantime."""
    _seen.clear()
    yield _seen


def probe(number: int, own: Callable[[], T], other: Callable[[], Any], *, truth: bool = False) -> T:
    """The value of the own form. `truth`: only whether the values are true matters."""
    value = own()
    if not _seen.get(number):
        try:
            _seen[number] = differs(bool(value), bool(other())) if truth else differs(value, other())
        except Exception:  # whatever the mutant's form raises
            _seen[number] = True
    return value


def differs(left: Any, right: Any) -> bool:
    """Whether two values are not the same to their readers. Iterators, which one reading empties, always are.

    >>> differs((1, 2), (1, 2)), differs([1], (1,)), differs(float("nan"), float("nan"))
    (False, True, False)
    """
    if isinstance(left, Iterator) or isinstance(right, Iterator):
        return True
    if left is right:
        return False
    if type(left) is not type(right):
        return True
    if isinstance(left, tuple | list):
        return len(left) != len(right) or any(map(differs, left, right))
    if isinstance(left, torch.Tensor):
        return not (left.shape == right.shape and left.dtype == right.dtype and torch.equal(left, right))
    if isinstance(left, np.ndarray):
        return not (left.dtype == right.dtype and np.array_equal(left, right))
    if isinstance(left, float) and math.isnan(left):
        return not math.isnan(right)
    return bool(left != right)
