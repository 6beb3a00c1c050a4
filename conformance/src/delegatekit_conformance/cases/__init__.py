"""The cases of the suite, room by room: contract, operators, extremes, patterns, dynamic, graphs, models and others.

Every module of this folder that has a function `cases()` adds what it returns, and one that has `cases_for(context)`
adds cases specific to the backend (of its options); observers may add more through the
hook `conformance_cases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from ..context import Context
from .base import Broken, Case, NotApplicable, Rule

__all__ = ["Broken", "Case", "NotApplicable", "Rule", "all_cases"]


def all_cases(context: Context) -> Mapping[str, Case]:
    """All cases for a backend by name, in the order in which reports show them.

    Raises ValueError if two cases have one name, and TypeError if an observer adds something else.
    """
    from delegatekit.plugins import ask_observers

    found: dict[str, Case] = {}
    for room in rooms():
        for case in room.cases() if hasattr(room, "cases") else ():
            _add(found, case)
        for case in room.cases_for(context) if hasattr(room, "cases_for") else ():
            _add(found, case)
    for case in chain(*ask_observers("conformance_cases", _answered, backend=context.backend)):
        if not isinstance(case, Case):
            raise TypeError(f"an observer adds {case!r} to the conformance cases, which is not a Case")
        _add(found, case)
    return found


def _answered(answer: Any) -> Sequence[Any]:
    """An observer's answer to the hook. Raises TypeError if it is no list."""
    if answer is not None and not isinstance(answer, tuple | list):
        raise TypeError(f"conformance_cases returned {type(answer).__name__}, not a list")
    return answer or ()


def rooms() -> Iterator[ModuleType]:
    """The modules of this folder, imported. They are the same for all backends."""
    for module in iter_modules(__path__):
        yield import_module(f"{__name__}.{module.name}")


def _add(found: dict[str, Case], case: Case) -> None:
    if case.name in found:
        raise ValueError(f"two conformance cases are called {case.name}")
    found[case.name] = case
