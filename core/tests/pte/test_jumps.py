"""Loops that cannot end are refused when a file is read."""

from __future__ import annotations

from typing import Any

import handmade
import pytest

from delegatekit.pte import read
from delegatekit.pte.schema import (
    AllocationDetails,
    Bool,
    Chain,
    EValue,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    ScalarType,
    Tensor,
)
from delegatekit.pte.validation import validate
from delegatekit_api import FormatError

#: Values: 0 is x, 1 its negative, 2 false, 3 true, 4 a bool that is moved, 5 a tensor of bools.
FLAG = Tensor(ScalarType.BOOL, sizes=[], dim_order=b"", allocation_info=AllocationDetails(1, 120, 0))
VALUES = [
    handmade.tensor([5], 0),
    handmade.tensor([5], 64),
    EValue(Bool(False)),
    EValue(Bool(True)),
    EValue(Bool(False)),
    EValue(FLAG),
]
NEG = KernelCall(0, [0, 1, 1])


def check(*chains: list[Any]) -> None:
    tables = [Chain([], [], [Instruction(call) for call in calls]) for calls in chains]
    validate(read(handmade.build(VALUES, [0, 5], [1], [], ["aten::neg.out"], chains=tables)))


ENDLESS: dict[str, list[Any]] = {
    "to itself": [JumpFalseCall(2, 0)],
    "to itself, on a tensor that nothing writes": [NEG, JumpFalseCall(5, 1)],
    "two jumps to each other": [JumpFalseCall(5, 1), JumpFalseCall(5, 0), NEG],
    "jumps with nothing but a release between them": [NEG, FreeCall(0), JumpFalseCall(5, 1)],
    "around a kernel": [NEG, JumpFalseCall(2, 0), NEG],
    "with a way past it": [JumpFalseCall(5, 3), NEG, JumpFalseCall(2, 1), NEG],
    "past a jump that never leaves": [NEG, JumpFalseCall(3, 3), JumpFalseCall(2, 0)],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_loop_that_cannot_end_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match=r"instruction [01]: leads into a loop that cannot end"):
        check(ENDLESS[name])


def test_a_loop_in_a_later_chain_is_found() -> None:
    with pytest.raises(FormatError, match="leads into a loop that cannot end"):
        check([NEG], [JumpFalseCall(2, 0)])


FINE: dict[str, list[Any]] = {
    "a loop whose condition changes": [NEG, MoveCall(3, 4), JumpFalseCall(4, 0)],
    "a loop on a tensor": [NEG, JumpFalseCall(5, 0)],
    "a loop that is left in the middle": [NEG, JumpFalseCall(5, 3), JumpFalseCall(2, 0), NEG],
    "a jump over something": [NEG, JumpFalseCall(2, 3), NEG],
    "a jump that is never taken": [NEG, JumpFalseCall(3, 1)],
    "instructions that are never reached": [NEG, JumpFalseCall(2, 3), JumpFalseCall(2, 2)],
    "a jump to the end": [NEG, JumpFalseCall(5, 2)],
}


@pytest.mark.parametrize("name", FINE)
def test_other_jumps_pass(name: str) -> None:
    check(FINE[name])


@pytest.mark.parametrize("value", [0, 1])
def test_a_jump_on_what_is_no_bool_is_refused(value: int) -> None:
    with pytest.raises(FormatError, match="neither a bool nor a tensor of bools"):
        check([NEG, JumpFalseCall(value, 0)])
