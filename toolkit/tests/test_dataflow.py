"""Checks of a blob's values: sources, sizes, data, memory."""

from __future__ import annotations

import pytest

from delegatekit_api import FormatError
from delegatekit_toolkit.dataflow import MOST_BYTES, Dataflow, check_disjoint, element_count, section


def test_each_value_has_one_source_and_is_there_before_it_is_read() -> None:
    flow = Dataflow([0, 1], [2])
    flow.step([0, 2], [3], "step 0")
    flow.step([3, 3], [4, 5], "step 1")
    flow.check_outputs([5, 0])
    for reads, writes, message in (
        ([6], [7], "step 2: reads 6, which is not computed before"),
        ([7], [7], "step 2: reads 7"),
        ([], [0], "step 2: writes 0, which is an input"),
        ([], [2], "step 2: writes 2, which is a constant"),
        ([], [3], "step 2: writes 3, which is the result of step 0"),
        ([], [8, 8], "step 2: writes 8, which is the result of step 2"),
    ):
        with pytest.raises(FormatError, match=message):
            flow.step(reads, writes, "step 2")
    with pytest.raises(FormatError, match="my blob: returns 9, which is never computed"):
        Dataflow(where="my blob").check_outputs([9])


def test_an_input_is_not_a_constant_and_not_there_twice() -> None:
    with pytest.raises(FormatError, match="has a constant 1, which is an input"):
        Dataflow([1], [1])
    with pytest.raises(FormatError, match="has an input 1, which is an input"):
        Dataflow([1, 1])


@pytest.mark.parametrize(
    "shape", [(1 << 32, 1 << 32), (1 << 62, 4), (1 << 63, 2), (MOST_BYTES + 1,), (0, MOST_BYTES, 2)]
)
def test_products_that_would_overflow_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="more than 64 GiB"):
        element_count(shape, "value", least=0)


def test_a_size_below_the_least_is_refused_and_others_are_counted() -> None:
    assert element_count((), "value") == 1
    assert element_count((0, 3), "value", least=0) == 0
    for shape in ((0,), (3, -1), (-1, -1)):
        with pytest.raises(FormatError, match="each must be at least 1"):
            element_count(shape, "value")


@pytest.mark.parametrize(("offset", "size"), [(0, 5), (4, 1), (5, 0), (-1, 2), (2, -1), (1 << 63, 1 << 63)])
def test_a_section_lies_inside_its_data(offset: int, size: int) -> None:
    assert bytes(section(memoryview(b"data"), 4, 0, "blob")) == b""
    with pytest.raises(FormatError, match=r"blob: has .* bytes from"):
        section(memoryview(b"data"), offset, size, "blob")


def test_extents_lie_apart() -> None:
    check_disjoint([(8, 8, "b"), (0, 8, "a"), (4, 0, "nothing")])
    with pytest.raises(FormatError, match="b: lies over a, from byte 7 on"):
        check_disjoint([(7, 8, "b"), (0, 8, "a")])
