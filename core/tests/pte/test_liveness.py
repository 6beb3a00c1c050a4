"""Overlapping memory in methods that jump: refused cases, and cases that only look wrong."""

from __future__ import annotations

import handmade
import pytest
import torch
from handmade import both, build, number

import delegatekit
from delegatekit.pte.schema import AllocationDetails, Bool, EValue, JumpFalseCall, KernelCall, ScalarType, Tensor
from delegatekit_api import FormatError

NAMES = ["aten::neg.out", "aten::exp.out", "aten::add.out", "executorch_prim::et_copy_index.tensor"]
NAMES += ["executorch_prim::add.Scalar", "executorch_prim::eq.Scalar", "aten::select_copy.int_out"]
NEG, EXP, ADD, COPY_ROW, ADD_NUMBER, EQUAL, SELECT = range(7)


def condition(negative: int, power: int, result: int, other: int) -> bytes:
    """flag ? exp(-x) + x : exp(x) + x, with x at 0 and the others at these offsets."""
    flag = EValue(Tensor(ScalarType.BOOL, sizes=[], dim_order=b"", allocation_info=AllocationDetails(1, 512, 0)))
    tensors = [handmade.tensor([5], offset) for offset in (0, negative, power, result, other)]
    calls = [
        JumpFalseCall(5, 5),
        KernelCall(NEG, [0, 1, 1]),
        KernelCall(EXP, [1, 2, 2]),
        KernelCall(ADD, [2, 0, 7, 3, 3]),
        JumpFalseCall(6, 7),
        KernelCall(EXP, [0, 4, 4]),
        KernelCall(ADD, [4, 0, 7, 3, 3]),
    ]
    return build([*tensors, flag, EValue(Bool(False)), number(1)], [0, 5], [3], calls, NAMES)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param((64, 128, 192, 256), id="memory of their own"),
        pytest.param((64, 128, 192, 64), id="branches in the same memory"),
        pytest.param((64, 64, 192, 64), id="an operand taken over"),
        pytest.param((64, 128, 128, 128), id="the result over the last operand"),
    ],
)
def test_memory_that_nobody_needs_any_more_may_be_used_again(places: tuple[int, int, int, int]) -> None:
    x = torch.randn(5)
    for flag in (True, False):
        (result,) = both(condition(*places), x, torch.tensor(flag), calls=2)
        torch.testing.assert_close(result, (-x if flag else x).exp() + x)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ((0, 128, 192, 256), "instruction 1: value 1 overwrites value 0, which is still to be read"),
        ((64, 16, 192, 256), "instruction 2: value 2 overwrites value 0, which is still to be read"),
        ((64, 76, 192, 256), "instruction 2: value 2 overwrites value 1, which is still to be read"),
        ((64, 128, 192, 0), "instruction 5: value 4 overwrites value 0, which is still to be read"),
    ],
)
def test_a_branch_must_not_overwrite_what_is_still_read(places: tuple[int, int, int, int], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        delegatekit.load(condition(*places))


def loop(before: int, power: int) -> bytes:
    """y = -(-x); repeat { y = exp(y) + x } twice; x at 0, y at 64, -x at `before` and exp(y) at `power`."""
    tensors = [handmade.tensor([5], offset) for offset in (0, 64, before, power)]
    numbers = [number(0), number(1), number(2), EValue(Bool(False)), number(-2)]
    calls = [
        KernelCall(NEG, [0, 2, 2]),
        KernelCall(NEG, [2, 1, 1]),
        KernelCall(EXP, [1, 3, 3]),
        KernelCall(ADD, [3, 0, 5, 1, 1]),
        KernelCall(ADD_NUMBER, [4, 5, 4]),
        KernelCall(EQUAL, [4, 6, 7]),
        JumpFalseCall(7, 2),
        KernelCall(ADD_NUMBER, [4, 8, 4]),
    ]
    return build([*tensors, *numbers], [0], [1], calls, NAMES)


def test_what_only_stands_before_a_loop_may_be_overwritten_in_it() -> None:
    x = torch.randn(5)
    (result,) = both(loop(128, 128), x, calls=2)
    torch.testing.assert_close(result, (x.exp() + x).exp() + x)


@pytest.mark.parametrize("power", [0, 8])
def test_what_the_next_round_of_a_loop_reads_must_not_be_overwritten(power: int) -> None:
    with pytest.raises(FormatError, match="instruction 2: value 3 overwrites value 0, which is still to be read"):
        delegatekit.load(loop(128, power))


def rows(before: int, negative: int) -> bytes:
    """out[i] = -x[i] for 2 rows; x at 0, out at 64; exp(x) at `before` is unused, -x[i] is at `negative`."""
    tensors = [handmade.tensor([2, 4], 0), handmade.tensor([2, 4], 64), handmade.tensor([2, 4], before)]
    tensors += [handmade.tensor([4], 128), handmade.tensor([4], negative)]
    tensors[1].val.shape_dynamism = 1  # type: ignore[union-attr]
    numbers = [number(0), number(1), number(2), EValue(Bool(False)), number(-2), number(0)]
    calls = [
        KernelCall(EXP, [0, 2, 2]),
        KernelCall(SELECT, [0, 10, 5, 3, 3]),
        KernelCall(NEG, [3, 4, 4]),
        KernelCall(COPY_ROW, [1, 4, 5]),
        KernelCall(ADD_NUMBER, [5, 6, 5]),
        KernelCall(EQUAL, [5, 7, 8]),
        JumpFalseCall(8, 1),
        KernelCall(ADD_NUMBER, [5, 9, 5]),
    ]
    return build([*tensors, *numbers], [0], [1], calls, NAMES)


def test_rows_that_are_not_yet_written_have_nothing_to_lose() -> None:
    x = torch.randn(2, 4)
    assert torch.equal(both(rows(64, 256), x, calls=2)[0], -x)
    with pytest.raises(FormatError, match="instruction 2: value 4 overwrites value 1, which is still to be read"):
        delegatekit.load(rows(256, 64))
