"""The tolerance, and the comparison with NaN, infinities, shapes and dtypes."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_api import PluginError
from delegatekit_toolkit.accuracy import ROUNDOFF, Accuracy, Comparison, compare, tolerance

NAN, INF = math.nan, math.inf


def compared(result: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype = torch.float32) -> Comparison:
    return compare([result], [reference.double()], [reference.to(dtype)], "float32", Accuracy())


@pytest.mark.parametrize("name", ROUNDOFF)
def test_roundoff_is_half_of_what_torch_calls_epsilon(name: str) -> None:
    assert ROUNDOFF[name] == torch.finfo(getattr(torch, name)).eps / 2


def test_tolerance_grows_with_depth_and_with_the_root_of_the_length() -> None:
    assert tolerance("float32", "float32", 1) == 8 * 2.0**-24
    assert tolerance("float32", "float32", 16, depth=2) == 8 * tolerance("float32", "float32", 1)


def test_the_coarser_of_output_and_precision_counts() -> None:
    half = tolerance("float16", "float16", 9)
    assert tolerance("float16", "float32", 9) == tolerance("float32", "float16", 9) == half
    assert half > 1000 * tolerance("float32", "float32", 9)


def test_integers_must_be_exact() -> None:
    assert tolerance("int64", "float16", 100, depth=9) == 0.0
    reference = torch.tensor([1, 2, 3])
    assert compared(reference, reference, torch.int64).agrees
    assert not compared(reference + torch.tensor([0, 0, 1]), reference, torch.int64).agrees


def test_an_unknown_precision_is_one_clear_error() -> None:
    with pytest.raises(PluginError, match="'int3' is unknown"):
        tolerance("float32", "int3", 1)


@pytest.mark.parametrize("signed", [True, False], ids=["random signs", "one sign"])
@pytest.mark.parametrize("length", [1, 16, 256, 4096])
def test_honest_float32_sums_pass_with_room_and_half_precision_fails(length: int, signed: bool) -> None:
    generator = torch.Generator().manual_seed(length)
    terms = torch.randn(64, length, generator=generator)
    terms = terms if signed else terms.abs()
    total, coarse = torch.zeros(64), torch.zeros(64, dtype=torch.float16)
    for column in terms.T:  # sequential rounding: the worst order of summation
        total, coarse = total + column, coarse + column.half()
    honest = compare([total], [terms.double().sum(1)], [terms.sum(1)], "float32", Accuracy(length))
    assert honest.agrees
    dishonest = compare([coarse.float()], [terms.double().sum(1)], [terms.sum(1)], "float32", Accuracy(length))
    assert not dishonest.agrees


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_special_values_agree_where_the_reference_has_them(special: float) -> None:
    values = torch.tensor([1.0, special, -2.0])
    assert compared(values, values).agrees
    for other in {NAN, INF, -INF, 3.0} - {special}:
        if math.isnan(special) and math.isnan(other):
            continue
        assert not compared(torch.tensor([1.0, other, -2.0]), values).agrees, other


@pytest.mark.parametrize("special", [NAN, INF])
def test_a_special_value_does_not_hide_the_error_beside_it(special: float) -> None:
    result = compared(torch.tensor([1.5, special]), torch.tensor([1.0, special]))
    assert not result.agrees
    assert result.error == pytest.approx(0.5)


def test_what_overflows_in_the_output_must_be_infinite_there() -> None:
    reference = torch.tensor([1e300, 1.0], dtype=torch.float64)
    assert compared(torch.tensor([INF, 1.0]), reference).agrees
    assert not compared(torch.tensor([3e38, 1.0]), reference).agrees


def test_shapes_dtypes_and_counts_must_be_the_same() -> None:
    ones = torch.ones(2, 3)
    assert "shape (3, 2)" in compared(torch.ones(3, 2), ones).difference
    assert "float64" in compared(ones.double(), ones).difference
    assert "is a float" in compare([1.0], [ones], [ones], "float32", Accuracy()).difference
    assert "2 outputs" in compare([1, 2], [ones], [ones], "float32", Accuracy()).difference


def test_empty_and_zero_outputs_can_be_compared() -> None:
    assert compared(torch.empty(0, 3), torch.empty(0, 3)).agrees
    assert compared(torch.zeros(3), torch.zeros(3)).agrees
    assert not compared(torch.full((3,), 1e-30), torch.zeros(3)).agrees


def test_the_second_output_counts_too() -> None:
    ones = torch.ones(3)
    result = compare([ones, ones * 1.1], [ones.double()] * 2, [ones] * 2, "float32", Accuracy())
    assert "output 1" in result.difference


def test_exact_results_excuse_no_rounding_in_their_own_dtype_but_in_a_coarser_precision() -> None:
    reference, off = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 2**-22])
    assert compare([off], [reference.double()], [reference], "float32", Accuracy()).agrees
    assert not compare([off], [reference.double()], [reference], "float32", Accuracy(exact=True)).agrees
    assert compare([off], [reference.double()], [reference], "float16", Accuracy(exact=True)).agrees


def test_a_value_that_the_dtype_rounds_to_the_same_number_is_exact() -> None:
    reference = torch.tensor([1.0 + 2.0**-30], dtype=torch.float64)
    assert compare([torch.tensor([1.0])], [reference], [reference.float()], "float32", Accuracy(exact=True)).agrees


def test_ill_conditioned_results_may_be_off_by_what_a_rounding_of_the_inputs_changes() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    moved = x + torch.tensor([1e-3, 0.0])
    result = torch.tensor([1.0015, 2.0])
    assert compare([result], [x], [x.float()], "float32", Accuracy(), [moved]).agrees
    assert not compare([result], [x], [x.float()], "float32", Accuracy()).agrees
    assert not compare([torch.tensor([1.0, 2.0015])], [x], [x.float()], "float32", Accuracy(), [moved]).agrees


def test_special_values_may_stand_where_eager_itself_has_them() -> None:
    reference = torch.tensor([NAN, 1.0], dtype=torch.float64)
    eager = torch.tensor([0.0, 1.0])
    for result, agrees in (([NAN, 1.0], True), ([0.0, 1.0], True), ([INF, 1.0], False), ([NAN, NAN], False)):
        assert compare([torch.tensor(result)], [reference], [eager], "float32", Accuracy()).agrees == agrees, result


def test_what_is_too_small_for_a_normal_number_may_be_zero() -> None:
    small = torch.tensor([1e-40, -3e-39])
    assert compared(torch.zeros(2), small).agrees
    assert not compared(torch.zeros(2), small * 1e4).agrees


def test_quantized_integers_may_be_some_steps_off() -> None:
    reference = torch.tensor([-128, 0, 127], dtype=torch.int8)
    result = torch.tensor([-128, 2, 127], dtype=torch.int8)
    found = compare([result], [reference], [reference], "float32", Accuracy(steps=1))
    assert (found.error, found.tolerance, found.difference) == (2.0, 1.0, "output 0: 2 steps off, 1 may be")
    assert compare([result], [reference], [reference], "float32", Accuracy(steps=2)).agrees
    assert not compare([result > 1], [reference > 2], [reference > 2], "float32", Accuracy(steps=9)).agrees


def test_steps_finer_than_the_declared_precision_are_lost_in_it() -> None:
    reference = torch.tensor([-30000, 30000])
    limits = {
        (precision, bits): compare(
            [reference], [reference], [reference], precision, Accuracy(steps=1, step=1 / (2**bits - 1))
        ).tolerance
        for precision in ("float32", "float16")
        for bits in (8, 16)
    }
    # Eight roundings of float16 are 2^-8 of a number: 128 of the 32768 steps of 16 bits on one side of zero.
    assert limits == {("float32", 8): 1, ("float32", 16): 1, ("float16", 8): 1, ("float16", 16): 127}


def test_floats_of_quantized_numbers_are_as_exact_as_a_step() -> None:
    reference = torch.tensor([1.0, 0.5], dtype=torch.float64)
    result = torch.tensor([1.0, 0.51])
    assert not compared(result, reference).agrees
    assert compare([result], [reference], [reference.float()], "float32", Accuracy(step=1 / 255)).agrees
    assert not compare([result], [reference], [reference.float()], "float32", Accuracy(step=1 / 65535)).agrees
