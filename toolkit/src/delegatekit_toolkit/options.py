"""Options that most backends have, and checks of options' values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delegatekit_api import option


def leave_out_option() -> Any:
    """The option `leave_out`: operators that the user withholds from the backend. `TablePartitioner` applies it.

    >>> from dataclasses import dataclass
    >>> from delegatekit_api import BackendOptions
    >>> @dataclass(frozen=True)
    ... class MyOptions(BackendOptions):
    ...     leave_out: frozenset[str] = leave_out_option()
    ...
    >>> MyOptions.from_mapping({"leave_out": "add,aten.mul"}).leave_out == {"add", "aten.mul"}
    True
    """
    return option(
        frozenset(), help='Operators that the backend shall not take: "aten.add.Tensor", "aten.add" or "add".'
    )


def whole_graph_option() -> Any:
    """The option `whole_graph`: a program that is not one delegate is refused. `TablePartitioner` applies it.

    >>> from dataclasses import dataclass
    >>> from delegatekit_api import BackendOptions
    >>> @dataclass(frozen=True)
    ... class MyOptions(BackendOptions):
    ...     whole_graph: bool = whole_graph_option()
    ...
    >>> MyOptions.from_mapping({"whole_graph": "true"}).whole_graph
    True
    """
    return option(False, help="Refuse a program, with the reasons, unless each method is one delegate of this backend.")


def at_least(lowest: float) -> Callable[[Any], str | None]:
    """A check for `option(..., check=)`: the number is not below `lowest`; None passes.

    >>> at_least(0)(-1), at_least(0)(3)
    ('it is not 0 or more', None)
    """
    return lambda value: None if value is None or value >= lowest else f"it is not {lowest} or more"


def between(lowest: float, highest: float) -> Callable[[Any], str | None]:
    """A check for `option(..., check=)`: the number is within the bounds, both included; None passes.

    >>> between(1, 8)(9)
    'it is not between 1 and 8'
    """
    wrong = f"it is not between {lowest} and {highest}"
    return lambda value: None if value is None or lowest <= value <= highest else wrong
