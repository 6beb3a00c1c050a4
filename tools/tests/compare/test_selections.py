"""Selections: right ones are followed, wrong ones are named, and so are faults before and after them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from crooked import Faulty
from selecting import SELECTING, selecting
from torch import nn

import delegatekit as dk


def compare(name: str, **settings: Any) -> dk.Comparison:
    module, inputs = selecting(name)
    return dk.compare(module, inputs, **{"backends": ["crooked"], **settings})


@pytest.mark.parametrize("name", SELECTING)
def test_a_right_selection_in_float16_is_right(name: str, coarse: Faulty) -> None:
    coarse("")
    found = compare(name)
    assert found.right, str(found)
    followed = any("compared along the program's own selections" in remark for remark in found.remarks)
    assert followed or name == "suppression"


@pytest.mark.sweep
@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("operator", ["aten.tanh.default", "aten.exp.default"])
def test_a_small_fault_before_or_after_a_selection_is_named(name: str, operator: str, faulty: Faulty) -> None:
    faulty(f"times1.0005 {operator}")
    found = compare(name)
    assert found.first is not None and found.first.operator.name == operator, str(found)
    # A call of control flow is wrong with what is inside.
    wrong = {item.name for item in found.operators if not item.measured.right}
    assert wrong - {"cond", "while_loop", "map_impl"} == {operator}
    assert found.first.kind == "alone" and found.first.snippet


def test_a_fault_of_neighbors_before_a_selection_is_traced_to_both(faulty: Faulty) -> None:
    faulty("after-linear aten.tanh.default")
    found = compare("topk")
    assert found.first is not None and found.first.kind == "context", str(found)
    assert [item.name for item in found.first.run] == ["aten.linear.default", "aten.tanh.default"]


@pytest.mark.parametrize("name", ["sort", "masks", "topk"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_right_program_in_half_precision_is_right(name: str, dtype: torch.dtype) -> None:
    module, (x,) = selecting(name)
    found = dk.compare(module.to(dtype), (x.to(dtype),), backends=["reference"])
    assert found.right, str(found)


@pytest.mark.parametrize("name", ["topk", "masks", "suppression"])
@pytest.mark.parametrize("operator", ["aten.tanh.default", "aten.exp.default"])
def test_in_float16_a_fault_of_a_percent_is_named(name: str, operator: str, coarse: Faulty) -> None:
    coarse(f"times1.01 {operator}")
    found = compare(name)
    assert found.first is not None and found.first.operator.name == operator, str(found)


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("topk", "one-twice aten.topk.default", "selects elements twice: 1 of 750"),
        ("topk", "turned aten.topk.default", "indices select elements that are off by"),
        ("topk", "next aten.topk.default", "indices select elements that are off by"),
        ("sort", "turned aten.sort.default", "indices select elements that are off by"),
        ("sort", "next aten.sort.default", "indices select elements that are off by"),
        ("extremes", "next aten.max.dim", "indices select elements that are off by"),
        ("embedding", "one-more aten.argmax.default", ""),
        ("masks", "flipped aten.gt.Scalar", "elements are on the wrong side of a threshold"),
        ("whole numbers", "one-more aten.floor.default", "numbers are off by"),
    ],
)
def test_a_wrong_selection_is_wrong(name: str, fault: str, words: str, coarse: Faulty) -> None:
    coarse(fault)
    found = compare(name)
    assert found.first is not None and found.first.operator.name == fault.split()[1], str(found)
    assert words in found.first.operator.measured.difference
    assert not all(output.measured.right for output in found.outputs)


class Equal(nn.Module):
    """A stable sort of numbers that are equal for sure."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 0).sort(stable=True).indices


def test_a_stable_sort_keeps_the_order_of_equal_elements(coarse: Faulty) -> None:
    coarse("turned aten.sort.stable")
    found = dk.compare(Equal(), (torch.randn(9),), backends=["crooked"])
    assert found.first is not None
    assert "equal elements are not in their order" in found.first.operator.measured.difference


def test_a_tie_is_right_and_told(coarse: Faulty) -> None:
    coarse("")
    found = compare("argmax")
    _, indices = (output.measured for output in found.outputs)
    assert found.right and indices.ties > 0 and f"{indices.ties} of its choices are not PyTorch's" in str(found)
    assert indices.error is not None and indices.bound is not None and 0 < indices.error <= indices.bound < 0.1
    assert f"aten.argmax.default (argmax_default): {indices.ties} of 1500 choices are ties" in str(found)
