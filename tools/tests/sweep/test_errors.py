"""Errors of outputs against eager: floats are measured, indices and flags are equal or not."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_tools.sweep.errors import Compared


def test_each_output_has_its_own_errors_over_all_samples() -> None:
    compared = Compared()
    for shift in (0.0, 0.5):
        expected = {"boxes": torch.tensor([3.0, 4.0]), "classes": torch.tensor([1, 7, 2])}
        found = {"boxes": torch.tensor([3.0, 4.0 + shift]), "classes": torch.tensor([1, 3, 2])}
        compared.add("forward", expected, found)
    boxes, classes = compared.outputs
    assert (boxes.name, boxes.dtype, boxes.elements, boxes.different) == ("[boxes]", "float32", 4, 1)
    assert boxes.largest_error == 0.5 and boxes.sqnr == pytest.approx(10 * math.log10(50 / 0.25))
    assert boxes.cosine == pytest.approx((9 + 18) / (5 * math.sqrt(9 + 4.5**2)))
    # The distance of two classes is no error.
    assert (classes.elements, classes.different, classes.largest_error, classes.sqnr) == (6, 2, None, None)


def test_equal_infinities_and_nan_are_right_and_other_nan_is_not() -> None:
    exact = torch.tensor([math.inf, math.nan, 1.0])
    compared = Compared(named=True)
    compared.add("decode", exact, exact.clone())
    (output,) = compared.outputs
    assert (output.name, output.different, output.largest_error) == ("decode", 0, 0.0)
    compared.add("decode", exact, torch.tensor([math.inf, math.nan, math.nan]))
    (output,) = compared.outputs
    assert output.different == 1 and output.largest_error is not None and math.isnan(output.largest_error)


def test_methods_are_told_apart() -> None:
    compared = Compared(named=True)
    compared.add("prefill", (torch.ones(1), torch.ones(1, dtype=torch.bool)), (torch.ones(1), torch.zeros(1) > 1))
    compared.add("decode", torch.ones(2), torch.ones(2))
    assert [output.name for output in compared.outputs] == ["prefill[0]", "prefill[1]", "decode"]
    assert [output.different for output in compared.outputs] == [0, 1, 0]
