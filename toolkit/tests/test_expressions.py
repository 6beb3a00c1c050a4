"""Sizes as expressions: what a model computes of them is what sympy says, whatever the sizes of the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy import functions

from delegatekit_api import LoweringError
from delegatekit_toolkit.expressions import SizeWriter, fixed_numbers, is_computable
from delegatekit_toolkit.testing import call_of

#: A model's value: the sizes of a call's tensors -> numbers.
Computed: TypeAlias = Callable[[dict[str, tuple[int, ...]]], list[int]]

_JOIN: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floor_div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "maximum": max,
    "minimum": min,
}


class Writer(SizeWriter[Any]):
    """Writes functions of the sizes of a call; values are names of tensors."""

    where = "test"

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def constant(self, numbers: Sequence[int]) -> Computed:
        return lambda call: list(numbers)

    def measured(self, value: str, axis: int) -> Computed:
        return lambda call: [call[value][axis]]

    def joined(self, kind: str, left: Computed, right: Computed) -> Computed:
        self.written += 1
        return lambda call: [_JOIN[kind](*left(call), *right(call))]

    def concatenated(self, parts: list[Computed]) -> Computed:
        return lambda call: [number for part in parts for number in part(call)]


ROWS, COLUMNS = sympy.symbols("rows columns", positive=True, integer=True)


def test_sizes_are_computed_from_those_of_values() -> None:
    sizes = [
        3,
        ROWS,
        2 * ROWS + COLUMNS - 1,
        ROWS * COLUMNS**2,
        functions.FloorDiv(ROWS - 3, 2),
        functions.Mod(COLUMNS, 3),
        functions.Max(ROWS, COLUMNS),
        functions.Min(ROWS, 4),
    ]
    assert all(map(is_computable, sizes))
    writer = Writer()
    writer.note("x", (ROWS, 5))
    # The number of columns is known from a multiple of it alone.
    writer.note("y", (2 * COLUMNS + 3,))
    made = writer.vector(sizes)
    for rows, columns in ((4, 1), (7, 5), (12, 9)):
        values = {ROWS: rows, COLUMNS: columns}
        wanted = [int(sympy.sympify(size).xreplace(values)) for size in sizes]
        assert made({"x": (rows, 5), "y": (2 * columns + 3,)}) == wanted


def test_a_size_is_computed_once() -> None:
    writer = Writer()
    writer.note("x", (ROWS,))
    for _ in range(2):
        writer.vector([ROWS + 1])
    assert writer.written == 1


@pytest.mark.parametrize(
    ("size", "message"), [(COLUMNS, "is not the size of a value"), (sympy.sqrt(ROWS), "cannot be computed")]
)
def test_what_does_not_follow_is_refused(size: Any, message: str) -> None:
    writer = Writer()
    writer.note("x", (ROWS,))
    with pytest.raises(LoweringError, match=message):
        writer.vector([size])


def test_numbers_that_change_are_taken_by_name() -> None:
    shapes = (({0: torch.export.Dim("n", max=9)},),)
    call = call_of(lambda x: x.reshape(x.shape[0] * 2, 2), torch.ones(3, 4), dynamic_shapes=shapes)
    assert fixed_numbers(lambda call: ("shape",), "device")(call) is None
    found = fixed_numbers(lambda call: None, "device")(call)
    assert found is not None and found.startswith("shape = ") and found.endswith("changes from call to call")
