"""The operators: for each a function that lowers a call, and the row that says when the backend takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_toolkit.constraints import equals
from delegatekit_toolkit.support import row

if TYPE_CHECKING:
    from delegatekit_api import Call

    from .ir import Builder


def _add(b: Builder, call: Call) -> int:
    return b.step("add", b.value(call["self"]), b.value(call["other"]))


def _mul(b: Builder, call: Call) -> int:
    return b.step("mul", b.value(call["self"]), b.value(call["other"]))


ROWS = (
    row("add.Tensor", _add, equals("alpha", 1)),
    row("mul.Tensor", _mul),
)
