"""Reads and writes of instructions that the file leaves implicit."""

from __future__ import annotations

from typing import Any

import handmade
import pytest

from delegatekit.pte.dataflow import Effect, effects
from delegatekit.pte.schema import (
    BackendDelegate,
    Bool,
    DelegateCall,
    EValue,
    ExecutionPlan,
    Int,
    IntList,
    KernelCall,
    MoveCall,
    Operator,
    TensorList,
)
from delegatekit_api import FormatError

ADD, RELU, VIEW, SPLIT, COPY = range(5)
OPERATORS = [
    Operator("aten::add", "out"),
    Operator("aten::relu", "out"),
    Operator("executorch_prim::et_view", "default"),
    Operator("aten::split_copy", "Tensor_out"),
    Operator("aten::copy_", ""),
]


def flow(values: list[Any], inputs: list[int], outputs: list[int], *calls: Any) -> list[Effect]:
    """Effects of calls on values, given as EValues or as offsets of planned tensors of 5 elements."""
    tables = [handmade.tensor([5], value) if isinstance(value, int) else value for value in values]
    plan = handmade.plan(tables, inputs, outputs, list(calls), operators=OPERATORS, delegates=[BackendDelegate("Test")])
    return list(effects(plan))


def split(found: list[Effect], step: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return found[step].reads, found[step].writes


def test_a_kernel_reads_its_arguments_and_writes_its_out() -> None:
    found = flow([0, 64, EValue(Int(1)), 128], [0, 1], [3], KernelCall(ADD, [0, 1, 2, 3, 3]))
    assert found == [Effect((0, 1, 2), (3,)), Effect((3,), ())]


def test_a_kernel_in_place_reads_and_updates() -> None:
    found = flow([0, 64, EValue(Bool(False))], [0, 1], [0], KernelCall(COPY, [0, 1, 2, 0]))
    assert found[0] == Effect((0, 1, 2), (), updates=(0,))


def test_the_items_of_lists_are_read_and_written() -> None:
    values = [0, EValue(Int(1)), 64, 128, EValue(TensorList([2, 3])), EValue(Int(0))]
    found = flow(values, [0], [2, 3], KernelCall(SPLIT, [0, 1, 5, 4, 4]))
    assert split(found) == ((0, 1, 5), (2, 3))


def test_a_delegates_outputs_are_what_has_no_value_yet() -> None:
    constant = handmade.tensor([5], constant=1)
    found = flow(
        [0, constant, 64, 128, 192], [0], [3, 4], KernelCall(RELU, [0, 2, 2]), DelegateCall(0, [0, 1, 2, 3, 4])
    )
    assert split(found, 1) == ((0, 1, 2), (3, 4))


def test_a_delegates_output_may_take_the_place_of_a_value_that_is_not_needed_any_more() -> None:
    # 1 = relu(0); 2 = relu(1); 3 = delegate(2), in the memory of 1.
    calls = KernelCall(RELU, [0, 1, 1]), KernelCall(RELU, [1, 2, 2]), DelegateCall(0, [2, 3])
    assert split(flow([0, 64, 128, 64], [0], [3], *calls), 2) == ((2,), (3,))


def test_a_value_moved_by_a_call_is_an_input_of_a_delegate() -> None:
    found = flow([0, 64, 128], [0], [2], MoveCall(0, 1), DelegateCall(0, [1, 2]))
    assert split(found, 1) == ((1,), (2,))


VIEW_OF_1 = handmade.tensor([5, 1], 64)


def test_a_view_that_the_writer_left_out_is_an_input_of_a_delegate() -> None:
    # 1 = relu(0); 2 = 1.view(5, 1), which no instruction makes; 3 = delegate(2).
    found = flow([0, 64, VIEW_OF_1, 128], [0], [3], KernelCall(RELU, [0, 1, 1]), DelegateCall(0, [2, 3]))
    assert split(found, 1) == ((2,), (3,))
    assert found[1].through == (1,)


def test_a_left_out_view_of_a_value_that_is_read_before_and_later_is_an_input() -> None:
    calls = (
        KernelCall(RELU, [0, 1, 1]),
        KernelCall(RELU, [1, 3, 3]),
        DelegateCall(0, [2, 4]),
        KernelCall(RELU, [1, 5, 5]),
    )
    found = flow([0, 64, VIEW_OF_1, 128, 192, 256], [0], [3, 4, 5], *calls)
    assert split(found, 2) == ((2,), (4,))


def test_a_left_out_view_that_a_second_delegate_takes_stays_an_input() -> None:
    calls = KernelCall(RELU, [0, 1, 1]), DelegateCall(0, [2, 3]), DelegateCall(0, [2, 4])
    found = flow([0, 64, VIEW_OF_1, 128, 192], [0], [3, 4], *calls)
    assert split(found, 2) == ((2,), (4,))


def test_a_view_in_place_writes_nothing_and_one_elsewhere_does() -> None:
    shape = [EValue(Int(5)), EValue(IntList([1]))]
    in_place = flow([0, *shape, handmade.tensor([5], 0)], [0], [3], KernelCall(VIEW, [0, 2, 3]))
    assert in_place[0].writes == ()
    assert in_place[1].through == (0,)
    elsewhere = flow([0, *shape, handmade.tensor([5], 64)], [0], [3], KernelCall(VIEW, [0, 2, 3]))
    assert elsewhere[0].writes == (3,)


def test_inputs_behind_outputs_are_refused() -> None:
    with pytest.raises(FormatError, match="instruction 0: inputs and outputs are mixed up: argument 0 has no value"):
        flow([0, 64], [0], [1], DelegateCall(0, [1, 0]))


def test_every_chain_counts() -> None:
    plan: ExecutionPlan = handmade.plan(
        [handmade.tensor([5], offset) for offset in (0, 64)],
        [0],
        [1],
        [KernelCall(RELU, [0, 1, 1])],
        operators=OPERATORS,
    )
    assert plan.chains is not None
    plan.chains = plan.chains * 2
    assert [split(list(effects(plan)), step) for step in (0, 1)] == [((0,), (1,))] * 2
