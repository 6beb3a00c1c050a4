"""The probe in a plugin's sources: an expression in its own form and in mutants' forms, of which the first counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

import torch

T = TypeVar("T")

#: The values that mutants' forms of constants have, by number.
constants: dict[int, Any] = {}
#: Results of the current example: a form's number -> True if it ever had another value than the plugin's own.
_seen: dict[int, bool] = {}
#: Threads that evaluate a mutant's form: probes that they run in the meantime are not the example's.
_apart: set[int] = set()


@contextmanager
def watching() -> Iterator[dict[int, bool]]:
    """The results of probes in this process within the block."""
    _seen.clear()
    yield _seen


def probe(numbers: Sequence[int], own: Callable[[], T], *others: Callable[[], Any], truth: bool = False) -> T:
    """The value of the own form; `others` have the numbers. `truth`: only the truth of the values matters.

    Exceptions of the own form are raised, and the others are compared with them.
    """
    if get_ident() in _apart:
        return own()
    try:
        value = own()
    except Exception as error:
        _compare(numbers, others, partial(_ends_otherwise, error))
        raise
    _compare(numbers, others, lambda other: differs(bool(value), bool(other())) if truth else differs(value, other()))
    return value


def _compare(
    numbers: Sequence[int], others: Sequence[Callable[[], Any]], is_another: Callable[[Callable[[], Any]], bool]
) -> None:
    thread = get_ident()
    for number, other in zip(numbers, others, strict=True):
        if _seen.get(number):
            continue
        _apart.add(thread)
        try:
            _seen[number] = is_another(other)
        except Exception:  # the mutant's form may raise anything
            _seen[number] = True
        finally:
            _apart.discard(thread)


def _ends_otherwise(error: Exception, form: Callable[[], Any]) -> bool:
    """True if a form does not raise the exception of the plugin's own form."""
    try:
        form()
    except type(error) as raised:
        return type(raised) is not type(error) or str(raised) != str(error)
    return True


def differs(left: Any, right: Any) -> bool:
    """True if two values differ for their readers. Iterators, which one reading empties, always do.

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
    if hasattr(left, "__array_interface__"):  # of numpy
        return (left.dtype, left.shape, left.tobytes()) != (right.dtype, right.shape, right.tobytes())
    if isinstance(left, float) and math.isnan(left):
        return not math.isnan(right)
    return bool(left != right)
