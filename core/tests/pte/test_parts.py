"""Values that are parts of others: the effects of instructions on them, and the writes over them that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import plan, tensor

from delegatekit.pte import PteImage, read, schema, to_bytes
from delegatekit.pte.dataflow import effects
from delegatekit.pte.validation import validate
from delegatekit_api import FormatError

NEG, EXP = 0, 1
OPERATORS = [schema.Operator("aten::neg", "out"), schema.Operator("aten::exp", "out")]


def call(kernel: int, source: int, target: int) -> schema.KernelCall:
    return schema.KernelCall(kernel, [source, target, target])


def method(values: list[tuple[list[int], int]], outputs: list[int], *calls: Any) -> schema.ExecutionPlan:
    """Value 0 is the input; each value is its sizes and its offset."""
    return plan(
        [tensor(sizes, offset) for sizes, offset in values],
        [0],
        outputs,
        list(calls),
        operators=OPERATORS,
        delegates=[schema.BackendDelegate("Test") for item in calls if isinstance(item, schema.DelegateCall)],
        non_const_buffer_sizes=[0, 512],
    )


def check(table: schema.ExecutionPlan) -> None:
    validate(read(to_bytes(PteImage((table,)))))


WHOLE, ROW, RESULT, OTHER = ([4, 8], 128), ([1, 8], 160), ([1, 8], 256), ([4, 8], 128)


def test_reading_a_part_sees_the_whole() -> None:
    table = method([([4, 8], 0), WHOLE, ROW, RESULT], [3], call(EXP, 0, 1), call(NEG, 2, 3))
    assert effects(table)[1].reads == (2,) and effects(table)[1].through == (1,)
    check(table)


def test_reading_a_whole_sees_its_parts() -> None:
    parts = [([2, 8], 0), ([2, 8], 64), ([4, 8], 0), ([4, 8], 128)]
    table = method(parts, [3], call(EXP, 0, 1), call(NEG, 2, 3))
    assert effects(table)[1].through == (0, 1)
    check(table)


def test_a_part_sees_what_was_written_there_last() -> None:
    values = [([4, 8], 0), WHOLE, ROW, RESULT, OTHER]
    table = method(values, [3], call(EXP, 0, 1), call(EXP, 0, 4), call(NEG, 2, 3))
    assert effects(table)[2].through == (4,)


def test_a_whole_that_is_seen_through_a_part_is_not_written_over_by_a_value_beside_it() -> None:
    """The new value begins in the whole's last row, after the row that is read, and ends after it."""
    values = [([4, 8], 0), WHOLE, ROW, RESULT, ([2, 8], 224)]
    check(method(values, [3], call(EXP, 0, 1), call(NEG, 2, 3)))
    with pytest.raises(FormatError, match="value 4 overwrites value 1, which is read until instruction 2"):
        check(method([*values, ([2, 8], 0)], [3], call(EXP, 0, 1), call(NEG, 5, 4), call(NEG, 1, 3)))


@pytest.mark.parametrize(("stated", "inputs"), [(1, 2), (2, 1), (3, 0)])
def test_the_number_of_a_delegates_outputs_may_be_stated(stated: int, inputs: int) -> None:
    table = method([([4, 8], 0), ([1, 8], 32), RESULT], [2], schema.DelegateCall(0, [0, 1, 2]))
    effect = effects(table, {0: stated})[0]
    assert effect.reads == (0, 1, 2)[:inputs] and effect.writes == (0, 1, 2)[inputs:]


@pytest.mark.parametrize("stated", [0, -1, 4])
def test_a_number_of_outputs_that_cannot_be_is_not_believed(stated: int) -> None:
    table = method([([4, 8], 0), RESULT], [1], schema.DelegateCall(0, [0, 1]))
    assert effects(table, {0: stated}) == effects(table)
